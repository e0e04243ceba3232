"""Text in which nothing hides and nothing poses as something else: what a person reads before it is allowed (D2).

For pages that the server writes, as `webchat/js/state/hidden_characters.js` is for those of the browser. Python knows no
scripts, so that of a letter is the first word of its name.
"""

import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby

# What shows nothing although it counts as a letter, a mark or a symbol.
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00013441\U00013442\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
_PLAIN = re.compile(r"[\n\t\x20-\x7e]*")
_MOST_MARKS = 4  # on one letter (UTS #39, 5.4): piled up they cover other lines
_NO_SCRIPT = frozenset(
    ["FEMININE", "IDEOGRAPHIC", "KATAKANA-HIRAGANA", "MASCULINE", "MICRO", "MODIFIER"]
)
_WIDTHS = ("FULLWIDTH ", "HALFWIDTH ")
_TOGETHER = (  # what is written in one word: Japanese, Korean, Chinese (UTS #39, "highly restrictive")
    {"LATIN", "CJK", "HIRAGANA", "KATAKANA"},
    {"LATIN", "CJK", "HANGUL"},
    {"LATIN", "CJK", "BOPOMOFO"},
)


def visible(text: str) -> str:
    """Return the text with each character written out, as `\\u{202e}`, that cannot be seen or passes for another one."""
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
    shown, marks = [], 0
    for character in word:
        kind = unicodedata.category(character)
        is_piled = kind[0] == "M" and marks >= _MOST_MARKS
        poses = is_mixed and not character.isascii()
        is_clear = not (is_piled or poses or _BLANK.match(character))
        shown.append(character if is_clear else _written_out(character))
        marks = marks + 1 if kind == "Mn" else 0
    return "".join(shown)


def _others(run: Iterable[str]) -> str:
    return "".join(
        each
        if each in "\n\t" or (each.isprintable() and not _BLANK.match(each))
        else _written_out(each)
        for each in run
    )


def _is_mixed(word: str) -> bool:
    """Return whether its letters are of scripts that nobody writes in one word."""
    if word.isascii():
        return False
    scripts = {_script(letter) for letter in word} - {""}
    return len(scripts) > 1 and not any(scripts <= usual for usual in _TOGETHER)


def _script(character: str) -> str:
    """Return the script of a letter; nothing for what is used in all of them."""
    if unicodedata.category(character)[0] != "L":
        return ""
    name = unicodedata.name(character, "UNNAMED")
    for width in _WIDTHS:
        name = name.removeprefix(width)
    first = name.split()[0]
    return "" if first in _NO_SCRIPT else first


def _written_out(character: str) -> str:
    return f"\\u{{{ord(character):04x}}}"
