"""What rows and events keep in English: why a turn ended, what an answer lacks, what a sub-agent does.

People get it in their language.
"""


def _(text: str) -> str:
    """Mark a sentence for translation; Django translates it when it is read."""
    return text


def ngettext(one: str, other: str) -> tuple[str, str]:
    """Mark a sentence that has another form for one thing."""
    return one, other


NOT_STORED = _(
    "The server's database did not take what was done here. What ran last may have been applied, so check its effect "
    "before you continue."
)
INTERNAL_ERROR = _(
    "Something went wrong on the server. Try again; if it happens again, tell an administrator."
)
STEP_LIMIT = ngettext(
    "The turn was ended after %(limit)s step, its limit.",
    "The turn was ended after %(limit)s steps, its limit.",
)
TOKEN_LIMIT = _(
    "The turn was ended: it has used up the %(limit)s tokens that its agent may use in one turn. Send “go on” to "
    "continue in a new turn, or ask for less at once."
)
FAMILY_LIMIT = _(
    "The turn was ended: it has used up the %(limit)s tokens that a turn and all sub-agents that work for it may use, "
    "with them. Send “go on” to continue in a new turn, or ask for less at once."
)
STEP_CUT_OFF = _("A step of the answer was cut off at the limit of its length; the turn goes on.")
ANSWER_CUT_OFF = _(
    "The answer was cut off at the limit of its length. Send “go on” to continue, or ask for a shorter answer."
)
ANSWER_EMPTY = _("The model ended its answer without a word. Send “go on”, or ask in other words.")
NOTICES = (STEP_CUT_OFF, ANSWER_CUT_OFF, ANSWER_EMPTY)
ENDINGS = (NOT_STORED, INTERNAL_ERROR, STEP_LIMIT, TOKEN_LIMIT, FAMILY_LIMIT)
REPORT = _("Report of %(names)s")  # the message of a turn that passes reports on

QUEUED = _("waits for its turn")
THINKING = _("thinking")
WRITING = _("writing")
RUNNING = _("running %(tool)s")
ASKING = _("waits for your approval of %(tool)s")
ENDING = _("is being ended")
WORK_OF_SUB_AGENT = (QUEUED, THINKING, WRITING, RUNNING, ASKING, ENDING)
