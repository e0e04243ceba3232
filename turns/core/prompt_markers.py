"""Marks: how the texts begin that an agent reads as if somebody had said them, though no person has."""

TIME_IS_UP = "[TIME IS UP]"
INTERRUPTED = "[INTERRUPTED] The previous turn"
HAS_ENDED = "[HAS ENDED]"
ATTACHED = "[ATTACHED FILE]"
SHOWN = "[IMAGE OF A TOOL]"
SUB_AGENT = "[SUB-AGENT] This is a report, not a message of the user."
