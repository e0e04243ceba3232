"""What rows and events keep in English for people, who get it in their language: why a turn ended, what a sub-agent does."""


def _(text: str) -> str:
    """Mark a sentence for translation; Django translates it when it is read."""
    return text


NOT_STORED = _(
    "The server's database did not take what was done here. What ran last may have been applied, so check its effect "
    "before you continue."
)
INTERNAL_ERROR = _(
    "Something went wrong on the server. Try again; if it happens again, tell an administrator."
)
STEP_LIMIT = _("The turn was ended after %(limit)s steps, its limit.")
TOKEN_LIMIT = _(
    "The turn was ended: it has used up the %(limit)s tokens that its agent may use in one turn. Send “go on” to "
    "continue in a new turn, or ask for less at once."
)
FAMILY_LIMIT = _(
    "The turn was ended: it has used up the %(limit)s tokens that a turn and all sub-agents that work for it may use, "
    "with them. Send “go on” to continue in a new turn, or ask for less at once."
)
ENDINGS = (NOT_STORED, INTERNAL_ERROR, STEP_LIMIT, TOKEN_LIMIT, FAMILY_LIMIT)

QUEUED = _("waits for its turn")
THINKING = _("thinking")
WRITING = _("writing")
RUNNING = _("running %(tool)s")
ASKING = _("waits for your approval of %(tool)s")
ENDING = _("is being ended")
WORK_OF_SUB_AGENT = (QUEUED, THINKING, WRITING, RUNNING, ASKING, ENDING)
