"""English texts: markers in prompts, and sentences that rows and events store.

A sentence says why a turn ended, what an answer lacks, or what a sub-agent is doing. It is translated when it is shown.
"""

# Markers at the start of texts in a prompt that were not written by a person.
TIME_IS_UP = "[TIME IS UP]"
INTERRUPTED = "[INTERRUPTED] The previous turn"
HAS_ENDED = "[HAS ENDED]"
ATTACHED = "[ATTACHED FILE]"
SHOWN = "[IMAGE OF A TOOL]"
SUB_AGENT = "[SUB-AGENT] This is a report, not a message of the user."
CLEARED = "[CLEARED] A result of %(tool)s (%(length)s characters) was left out to save room."
READ_AGAIN = " Read it again with %(reader)s, id %(id)s."
SUMMARY = "[SUMMARY] The conversation until here was left out to save room. This is a summary of it, not a message of the user."


def _(text: str) -> str:
    """Mark a sentence for translation; it is translated when it is shown."""
    return text


def ngettext(one: str, other: str) -> tuple[str, str]:
    """Mark a sentence with a singular and a plural form."""
    return one, other


NOT_STORED = _(
    "The server could not store the results of this task. Its last calls may have taken effect, so check before you "
    "continue."
)
LEASE_LOST = _(
    "The server did not report for too long: it was suspended, could not reach its database, or ended. The last calls "
    "may have taken effect, so check before you continue."
)
STOOD_STILL = _(
    "The server was suspended for too long, so the running calls were stopped. They may have taken effect in part or "
    "in full, so check before you continue."
)
DATABASE_AWAY = _(
    "The server's database was unreachable or locked for too long, so the running calls were stopped. They may have "
    "taken effect in part or in full, so check before you continue."
)
INTERNAL_ERROR = _(
    "Something went wrong on the server. Try again; if it happens again, tell an administrator."
)
STEP_LIMIT = ngettext(
    "The task stopped at its limit of %(limit)s step.",
    "The task stopped at its limit of %(limit)s steps.",
)
TOKEN_LIMIT = _(
    "The task stopped because it used all %(limit)s tokens that its agent may use for one task. Send “go on” to continue, "
    "or ask for less in one message."
)
FAMILY_LIMIT = _(
    "The task stopped because it and its sub-agents used all %(limit)s tokens that they may use together. Send “go on” to "
    "continue, or ask for less in one message."
)
STEP_REPEATED = _(
    "%(reason)s, in the middle of an answer. The text so far is dropped; retrying in %(wait)s s."
)
STEP_CUT_OFF = _("A step of the answer was cut off at its length limit. The agent continues.")
ANSWER_CUT_OFF = _(
    "The answer was cut off at its length limit. Send “go on” to continue, or ask for a shorter answer."
)
ANSWER_EMPTY = _("The model returned an empty answer. Send “go on”, or rephrase your message.")
NOTICES = (STEP_REPEATED, STEP_CUT_OFF, ANSWER_CUT_OFF, ANSWER_EMPTY)
ENDINGS = (
    *(NOT_STORED, LEASE_LOST, STOOD_STILL, DATABASE_AWAY, INTERNAL_ERROR),
    *(STEP_LIMIT, TOKEN_LIMIT, FAMILY_LIMIT),
)
REPORT = _("Report of %(names)s")  # the message of a turn that delivers reports

QUEUED = _("queued")
THINKING = _("thinking")
WRITING = _("writing")
RUNNING = _("running %(tool)s")
ASKING = _("waiting for your approval of %(tool)s")
ASKING_FORM = _("waiting for your answer to a form of %(tool)s")
ENDING = _("stopping")
WORK_OF_SUB_AGENT = (QUEUED, THINKING, WRITING, RUNNING, ASKING, ASKING_FORM, ENDING)
