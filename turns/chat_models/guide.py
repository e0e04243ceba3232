"""The words of the `local` chat model about itself: help, greetings, and what it says when it does not understand."""

import re
from collections.abc import Iterable

from django.utils.translation import gettext as _

from turns.chat_models.commands import COMMANDS
from turns.chat_models.summaries import code, plain
from turns.core.chat_model import ChatRequest, ToolSpec

COLLEAGUES = "Other agents can work for you"  # how the list of them begins in the instructions
_EXAMPLE = "wait 5\nfetch https://example.org/\nthen\nrun date"
_MORE = r"\b[\w ,.!]{0,20}"
_HELP = re.compile(r"(?i)(?:help|commands|\?+|what can you do)[ ?.!]*")
_AGENTS = re.compile(r"(?i)(?:list |show )?(?:the )?agents[ ?.!]*")
_GREETING = re.compile(
    rf"(?i)(?:hi|hello|hey|hallo|greetings|good (?:morning|afternoon|evening|day)){_MORE}"
)
_THANKS = re.compile(rf"(?i)(?:thanks|thank you|thx){_MORE}")
_LISTED = re.compile(rf"{COLLEAGUES}.*((?:\n- .*)+)")


def talk(text: str, request: ChatRequest) -> str:
    """Return the answer to a message that asks for words alone; nothing if it asks for more."""
    if _HELP.fullmatch(text):
        return _help(request.tools)
    if _AGENTS.fullmatch(text):
        return _agents(request.instructions)
    if _GREETING.fullmatch(text):
        return _(
            "Hello! I am the built-in `local` model: I run tools for you. Try `run date`, "
            "`wait 20` to have something to cancel, or `help` for all that I understand."
        )
    if _THANKS.fullmatch(text):
        return _("You are welcome.")
    return ""


def not_understood() -> str:
    return _(
        "I am the built-in `local` model: I do not understand free text, only a few commands, such as "
        "`run ls -l`, `read notes.txt`, `fetch https://example.org/` or `wait 20`. Say `help` to see them all."
    )


def _help(tools: Iterable[ToolSpec]) -> str:
    """Return the command language by example, and the names of the tools."""
    rows = [f"- `{row.example}`: {_(row.meaning)}" for row in COMMANDS.values()]
    parts = [
        _("I am the built-in `local` model. I understand these commands, one on each line:"),
        "\n".join((*rows, f"- `agents`: {_('list the agents that can be asked')}")),
        _(
            "Several lines run side by side, save for `run`, `write` and `edit`, which each run alone; a line "
            "`then` begins the next step. An indented line belongs to the line above it."
        ),
        f"```text\n{_EXAMPLE}\n```",
    ]
    if names := ", ".join(code(tool.name) for tool in tools):
        parts.append(_("The tools here: %(names)s.") % {"names": names})
    return "\n\n".join(parts)


def _agents(instructions: str) -> str:
    """Return whom the instructions name as agents that can be asked."""
    listed = _LISTED.search(instructions)
    if listed is None:
        return _("There is no other agent here whom I could ask. An administrator can make some.")
    agents = (line[2:].partition(": ") for line in listed[1].strip().split("\n"))
    opening = _("These agents can work for you: say `ask` or `spawn`, a name, and what to do.")
    rows = (f"- {code(name)}{colon}{plain(text)}" for name, colon, text in agents)
    return "\n".join((opening, "", *rows))
