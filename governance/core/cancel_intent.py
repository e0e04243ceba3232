"""Cancel intents: whether a message only asks to stop (C6), without asking a model."""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from governance.core.cancel_phrases import CATALOGUE, CancelPhrases

# Longer texts cannot match; this keeps a pasted megabyte out of the normalisation.
MAX_LENGTH = 200

# Accents of Latin, Greek and Cyrillic letters, and the vowel signs of Arabic: people leave them out.
_LEFT_OUT = re.compile("[\u0300-\u036f\u064b-\u0655]")

_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}  # what is in no word


def is_cancel_intent(text: str, *, also: Iterable[str] = ()) -> bool:
    """Return whether `text` asks to stop what is running, and nothing else.

    The phrases of every language count, whatever the page's language; `also` has phrases of the site.
    """
    if len(text) > MAX_LENGTH:
        return False
    words = normalised_words(text)
    if not words:
        return False
    return _catalogue().fullmatch(words) is not None or any(
        words == normalised_words(phrase) for phrase in also
    )


def vocabulary(language: str, *, also: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the commands of English and of `language`, and the patterns that a whole message matches, for a page's script."""
    known = [words for words in CATALOGUE if words.language in {"en", language[:2]}]
    commands = {normalised_words(phrase) for words in known for phrase in words.commands}
    patterns = [_pattern(words, name="command") for words in known]
    return {
        "commands": sorted(commands),
        "patterns": [
            pattern.replace("(?P<", "(?<").replace("(?P=command)", r"\k<command>")
            for pattern in patterns
        ]
        + [normalised_words(phrase) for phrase in also],
    }


def has_cancel_word(text: str, *, also: Iterable[str] = ()) -> bool:
    """Return whether `text` contains a cancel phrase of any language, or one of `also`.

    A listener that heard only a part of it would take it for a cancel.
    """
    words = normalised_words(text)
    return _commands().search(words) is not None or any(
        f" {normalised_words(phrase)} " in f" {words} " for phrase in also
    )


def is_cancel_phrase(value: object) -> bool:
    """Return whether a site may add `value` as a phrase: a short text with at least one word."""
    return isinstance(value, str) and len(value) <= MAX_LENGTH and bool(normalised_words(value))


def normalised_words(text: str) -> str:
    """Return the casefolded words of `text` with one blank between them, without accents and punctuation."""
    if text.isascii():
        return " ".join(text.casefold().translate(_ASCII).split())
    letters = unicodedata.normalize("NFKD", text.casefold())
    folded = unicodedata.normalize("NFKC", _LEFT_OUT.sub("", letters)).casefold()
    return " ".join("".join(map(_letter_or_blank, folded)).split())


@cache
def _catalogue() -> re.Pattern[str]:
    return re.compile("|".join(_pattern(words, name=f"w{n}") for n, words in enumerate(CATALOGUE)))


@cache
def _commands() -> re.Pattern[str]:
    spaced = _any(phrase for words in CATALOGUE if words.is_spaced for phrase in words.commands)
    other = _any(phrase for words in CATALOGUE if not words.is_spaced for phrase in words.commands)
    return re.compile(rf"(?:^| )(?:{spaced})(?: |$)|{other}")


def _pattern(words: CancelPhrases, *, name: str) -> str:
    """Return the pattern of one language: openers, the phrase (repeated by whoever is in a hurry), object, closers."""
    blank = " " if words.is_spaced else " ?"
    before = f"(?:(?:{_any(words.before)}){blank})*" if words.before else ""
    about = f"(?:{blank}(?:{_any(words.about)}))?" if words.about else ""
    after = f"(?:{blank}(?:{_any(words.after)})){{0,3}}" if words.after else ""
    command = f"(?P<{name}>{_any(words.commands)})(?:{blank}(?P={name}))*"
    return f"{before}{command}{about}{after}"


def _any(phrases: Iterable[str]) -> str:
    """Return the alternatives, longest first."""
    return "|".join(sorted(map(normalised_words, phrases), key=len, reverse=True))


def _letter_or_blank(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cf":  # zero-width joiners and the like are part of no word and part none
        return ""
    return character if category[0] in "LMN" else " "
