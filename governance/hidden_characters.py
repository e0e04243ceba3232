"""Makes invisible and look-alike characters visible, in text that a person reads before allowing a call (D2).

This module is for pages that the server renders; `webchat/js/state/hidden_characters.js` does the same in the browser.
Python has no data about scripts, so the first word of a letter's Unicode name is used as its script.
"""

import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby

# Invisible characters whose category is letter, mark or symbol.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00013441\U00013442\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
_PLAIN = re.compile(r"[\n\t\x20-\x7e]*")
_MOST_MARKS = 4  # on one letter (UTS #39, 5.4); more would cover other lines
_NO_SCRIPT = frozenset(
    ["FEMININE", "IDEOGRAPHIC", "KATAKANA-HIRAGANA", "MASCULINE", "MICRO", "MODIFIER"]
)
_WIDTHS = ("FULLWIDTH ", "HALFWIDTH ")
_TOGETHER = (  # scripts that are mixed in words: Japanese, Korean, Chinese (UTS #39, "highly restrictive")
    {"LATIN", "CJK", "HIRAGANA", "KATAKANA"},
    {"LATIN", "CJK", "HANGUL"},
    {"LATIN", "CJK", "BOPOMOFO"},
)


def visible(text: str) -> str:
    """Return the text with each invisible or look-alike character escaped, for example as `\\u{202e}`."""
    if _PLAIN.fullmatch(text):
        return text
    runs = groupby(text, key=_is_alphanumeric)
    return "".join(
        _alphanumeric("".join(run)) if is_name else _others(run) for is_name, run in runs
    )


def _is_alphanumeric(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"


def _alphanumeric(word: str) -> str:
    is_mixed = _is_mixed(word)
    visible, marks = [], 0
    for character in word:
        kind = unicodedata.category(character)
        is_piled = kind[0] == "M" and marks >= _MOST_MARKS
        is_lookalike = is_mixed and not character.isascii()
        is_clear = not (is_piled or is_lookalike or _BLANK.match(character))
        visible.append(character if is_clear else _escape(character))
        marks = marks + 1 if kind == "Mn" else 0
    return "".join(visible)


def _others(run: Iterable[str]) -> str:
    return "".join(
        each if each in "\n\t" or (each.isprintable() and not _BLANK.match(each)) else _escape(each)
        for each in run
    )


def _is_mixed(word: str) -> bool:
    """Return whether the letters of a word belong to scripts that are not normally mixed."""
    if word.isascii():
        return False
    scripts = {_script(letter) for letter in word} - {""}
    return len(scripts) > 1 and not any(scripts <= usual for usual in _TOGETHER)


def _script(character: str) -> str:
    """Return the script of a letter, or an empty string if it belongs to no single script."""
    if unicodedata.category(character)[0] != "L":
        return ""
    name = unicodedata.name(character, "UNNAMED")
    for width in _WIDTHS:
        name = name.removeprefix(width)
    first = name.split()[0]
    return "" if first in _NO_SCRIPT else first


def _escape(character: str) -> str:
    return f"\\u{{{ord(character):04x}}}"
