"""Cancel intents: whether a message is nothing but a wish to stop (C6); no model is asked."""

import re
import unicodedata

# Longer texts cannot match; the bound keeps a pasted megabyte away from the normalisation.
_MAX_LENGTH = 200

_OPENERS = (
    "ok|okay|k|alright|all right|oh|ah|uh|um|hm+|hey|no|nope|nah|well|sorry|wait|hold on|actually"
    "|please|pls|just"
)
_WISHES = "stop|cancel|never ?mind|nvm|forget ?it|abort|quit"
_OBJECTS = (
    "it|that|this|these|those|everything|all|it all|all of (?:it|that|this)|all (?:that|this)"
    "|(?:the|this|that) (?:turn|run)"
)
_CLOSERS = "please|pls|now|right now|immediately|thanks|thank you"

# An object may be followed by a time ("stop it now") but not by a courtesy: "stop that please" is
# said about something in the talk as often as about the turn; an ordinary message (acceptance 41).
_CANCEL_INTENT = re.compile(
    rf"(?:(?:{_OPENERS}) )*"
    rf"(?:{_WISHES})(?: (?:{_WISHES}))*"
    rf"(?: (?:{_CLOSERS})| (?:{_OBJECTS})(?: (?:right )?now)?)?"
)


def is_cancel_intent(text: str) -> bool:
    """Return whether `text` as a whole asks to stop what is running, and says nothing else."""
    if len(text) > _MAX_LENGTH:
        return False
    return _CANCEL_INTENT.fullmatch(_words(text)) is not None


def _words(text: str) -> str:
    """Return the casefolded words of `text` with one blank between them and no punctuation."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(map(_letter_or_blank, folded)).split())


def _letter_or_blank(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cf":  # zero-width joiners and the like are part of no word and part none
        return ""
    return character if category[0] in "LMN" else " "
