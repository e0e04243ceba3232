"""The words of the `local` chat model about itself: help, greetings, and what it says when it does not understand."""

from collections.abc import Iterable
from itertools import takewhile

from django.utils.translation import gettext as _

from turns.chat_models.plans import Intent
from turns.chat_models.summaries import code, plain
from turns.core.chat_model import ToolSpec

COLLEAGUES = "Other agents can work for you"  # how the list of them begins in the instructions


def help_text(tools: Iterable[ToolSpec]) -> str:
    """Return the command language by example, and the names of the tools."""
    names = ", ".join(f"`{tool.name}`" for tool in tools)
    return "\n\n".join(
        part for part in (_commands(), _several(), _tools(names) if names else "") if part
    )


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
    lines = (
        instructions[instructions.find(COLLEAGUES) :].splitlines()
        if COLLEAGUES in instructions
        else []
    )
    listed = list(takewhile(lambda line: line.startswith("- "), lines[1:]))
    if not listed:
        return _("There is no other agent here whom I could ask. An administrator can make some.")
    agents = (line.removeprefix("- ").partition(": ") for line in listed)
    rows = (
        f"- {code(name)}: {plain(text)}" if text else f"- {code(name)}"
        for name, _colon, text in agents
    )
    opening = _("These agents can work for you: say `ask` or `spawn`, a name, and what to do.")
    return "\n".join((opening, "", *rows))


def _commands() -> str:
    rows = (
        ("run ls -l", _("run a shell command in the workspace")),
        ("read notes.txt", _("show a file")),
        ("list", _("list a directory: `list`, `list src`")),
        ("write notes.txt: Buy milk", _("write a file")),
        ("edit notes.txt: milk => bread", _("replace a text in a file")),
        ("fetch https://example.org/", _("show a page of the web")),
        ("wait 20", _("let 20 seconds pass")),
        ("ask assistant run date", _("let another agent do it, and wait for its answer")),
        ("spawn assistant wait 60", _("let another agent do it, and get its report later")),
        ("agents", _("list the agents that can be asked")),
        ("status", _("say how the calls of this conversation went")),
        ("say Hello", _("say something")),
        ("slowly One two three", _("say it word by word, so that you can cancel it")),
        ('call wait {"seconds": 3}', _("call any tool with its arguments as JSON")),
        ("within 5s run sleep 60", _("give a call a limit of its own (ms, s, min)")),
        ("repeat 5 run date", _("do the same again, one step after the other")),
    )
    opening = _("I am the built-in `local` model. I understand these commands, one on each line:")
    return "\n".join((opening, "", *(f"- `{example}`: {meaning}" for example, meaning in rows)))


def _several() -> str:
    example = "wait 5\nfetch https://example.org/\nthen\nrun date"
    return "\n\n".join(
        (
            _(
                "Several lines run side by side, save for `run`, `write` and `edit`, which each run alone; a line "
                "`then` begins the next step. An indented line belongs to the line above it."
            ),
            f"```text\n{example}\n```",
        )
    )


def _tools(names: str) -> str:
    return _("The tools here: %(names)s.") % {"names": names}
