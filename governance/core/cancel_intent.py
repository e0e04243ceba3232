"""Detect cancel intents, which are messages that only ask to stop (C6), without a model."""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from governance.core.cancel_phrases import CATALOGUE, CancelPhrases

# Longer texts never match, so that a pasted megabyte does not have to be normalised.
MAX_LENGTH = 200

# Accents of Latin, Greek and Cyrillic letters, and Arabic vowel signs, which people often omit.
_LEFT_OUT = re.compile("[\u0300-\u036f\u064b-\u0655]")


def is_cancel_intent(text: str | None, *, also: Iterable[str] = ()) -> bool:
    """Return whether `text` is only a request to stop the running work.

    The phrases of every language match, regardless of the page's language. `also` contains the site's own phrases.
    """
    if text is None or len(text) > MAX_LENGTH:
        return False
    words = normalised_words(text)
    if not words:
        return False
    return _catalogue().fullmatch(words) is not None or any(
        words == normalised_words(phrase) for phrase in also
    )


def vocabulary(language: str, *, also: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the commands and patterns with which a page's script detects cancel intents.

    The commands are those in English and `language`. The patterns match whole messages in any language.
    """
    languages = [words for words in CATALOGUE if words.language in {"en", language[:2]}]
    commands = {normalised_words(phrase) for words in languages for phrase in words.commands}
    # A browser recognises speech in its own language, which may differ from the page's.
    patterns = [_pattern(words, name="command") for words in CATALOGUE]
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

    If speech recognition understood only that part of `text`, it would report a cancel.
    """
    words = normalised_words(text)
    return _commands().search(words) is not None or any(
        f" {normalised_words(phrase)} " in f" {words} " for phrase in also
    )


def is_cancel_phrase(value: object) -> bool:
    """Return whether a site may add `value` as a phrase: a short text with at least one word."""
    return isinstance(value, str) and len(value) <= MAX_LENGTH and bool(normalised_words(value))


def normalised_words(text: str) -> str:
    """Return the casefolded words of `text`, separated by single spaces and without accents or punctuation."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    folded = unicodedata.normalize("NFKC", _LEFT_OUT.sub("", letters)).casefold()
    return " ".join("".join(map(_letter_or_blank, folded)).split())


@cache
def _catalogue() -> re.Pattern[str]:
    return re.compile("|".join(_pattern(words, name=f"w{n}") for n, words in enumerate(CATALOGUE)))


@cache
def _commands() -> re.Pattern[str]:
    spaced = _any(phrase for words in CATALOGUE if words.is_spaced for phrase in words.commands)
    unspaced = _any(
        phrase for words in CATALOGUE if not words.is_spaced for phrase in words.commands
    )
    return re.compile(rf"(?:^| )(?:{spaced})(?: |$)|{unspaced}")


def _pattern(words: CancelPhrases, *, name: str) -> str:
    """Return the pattern of one language, which consists of openers, a (repeated) command, an object and closers."""
    blank = " " if words.is_spaced else " ?"
    openers = f"(?:(?:{_any(words.before)}){blank})*" if words.before else ""
    about = f"(?:{blank}(?:{_any(words.about)}))?" if words.about else ""
    closers = f"(?:{blank}(?:{_any(words.after)})){{0,3}}" if words.after else ""
    command = f"(?P<{name}>{_any(words.commands)})(?:{blank}(?P={name}))*"
    return f"{openers}{command}{about}{closers}"


def _any(phrases: Iterable[str]) -> str:
    """Return the phrases as alternatives of a regular expression, longest first."""
    return "|".join(sorted(map(normalised_words, phrases), key=len, reverse=True))


def _letter_or_blank(character: str) -> str:
    category = unicodedata.category(character)
    if (
        category == "Cf"
    ):  # zero-width joiners and similar characters neither belong to words nor separate them
        return ""
    return character if category[0] in "LMN" else " "
