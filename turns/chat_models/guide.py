"""The words of the `local` chat model about itself: help, greetings, and what it says when it does not understand."""

from collections.abc import Iterable
from itertools import takewhile

from django.utils.translation import gettext as _

from turns.chat_models.commands import COMMANDS
from turns.chat_models.plans import Intent
from turns.chat_models.summaries import code, plain
from turns.core.chat_model import ToolSpec

COLLEAGUES = "Other agents can work for you"  # how the list of them begins in the instructions
_EXAMPLE = "wait 5\nfetch https://example.org/\nthen\nrun date"


def samples() -> list[tuple[str, str]]:
    """Return messages to begin with: what each shows, and its text."""
    return [
        (_("A slow tool"), "wait 20"),
        (_("Three at once"), "wait 5\nwait 12\nlist"),
        (_("One that fails"), "read nowhere.txt"),
        (_("What else there is"), "help"),
    ]


def help_text(tools: Iterable[ToolSpec]) -> str:
    """Return the command language by example, and the names of the tools."""
    rows = [f"- `{row.example}`: {_(row.meaning)}" for row in COMMANDS.values()]
    rows.append(f"- `agents`: {_('list the agents that can be asked')}")
    parts = [
        _("I am the built-in `local` model. I understand these commands, one on each line:"),
        "\n".join(rows),
        _(
            "Several lines run side by side, save for `run`, `write` and `edit`, which each run alone; a line "
            "`then` begins the next step. An indented line belongs to the line above it."
        ),
        f"```text\n{_EXAMPLE}\n```",
    ]
    if names := ", ".join(code(tool.name) for tool in tools):
        parts.append(_("The tools here: %(names)s.") % {"names": names})
    return "\n\n".join(parts)


def answer_to(intent: Intent) -> str:
    """Return the answer to a message that asks for nothing to be done."""
    if intent is Intent.GREETING:
        return _(
            "Hello! I am the built-in `local` model: I run tools for you. Try `run date`, "
            "`wait 20` to have something to cancel, or `help` for all that I understand."
        )
    if intent is Intent.THANKS:
        return _("You are welcome.")
    return _(
        "I am the built-in `local` model: I do not understand free text, only a few commands, such as "
        "`run ls -l`, `read notes.txt`, `fetch https://example.org/` or `wait 20`. Say `help` to see them all."
    )


def problem_text(problem: str) -> str:
    """Return the answer to commands of which one cannot be carried out."""
    return _("%(problem)s Nothing was run. Say `help` to see how it is written.") % {
        "problem": problem
    }


def by_the_way(note: str) -> str:
    """Return the note on an interrupted turn in words for the person; mostly nothing (H5)."""
    if not note:
        return ""
    note = " ".join(note.split()).removeprefix("[INTERRUPTED] ")
    return _("By the way: %(note)s") % {"note": note[:1].lower() + note[1:]}


def agents_in(instructions: str) -> str:
    """Return whom the instructions name as agents that can be asked."""
    _before, _heading, listed = instructions.partition(COLLEAGUES)
    agents = [
        (code(name), plain(text))
        for line in takewhile(lambda line: line.startswith("- "), listed.splitlines()[1:])
        for name, _colon, text in [line.removeprefix("- ").partition(": ")]
    ]
    if not agents:
        return _("There is no other agent here whom I could ask. An administrator can make some.")
    opening = _("These agents can work for you: say `ask` or `spawn`, a name, and what to do.")
    rows = (f"- {name}: {text}" if text else f"- {name}" for name, text in agents)
    return "\n".join((opening, "", *rows))
