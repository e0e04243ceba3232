"""The `local` chat model: no key, no network; it carries out a small command language with the real tools.

It keeps no state: the last thing that the user said is the plan, the answers since then tell how far it has come.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from math import ceil, inf

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from turns.chat_models.commands import COMMANDS, Answer, CommandProblem, parse
from turns.chat_models.summaries import code, plain, quoted, summarise
from turns.core.chat_model import ChatDelta, ChatRequest, Stop, StopReason, TextDelta, Usage
from turns.core.messages import Message
from turns.core.prompt_markers import ATTACHED, HAS_ENDED, INTERRUPTED, SHOWN, SUB_AGENT, TIME_IS_UP

COLLEAGUES = "Other agents can work for you"  # how the list of them begins in the instructions
PAUSE = 0.08  # seconds between two words of `slowly`
_AT_ONCE = 32  # pieces between two moments in which others may work
_PER_TOKEN = 4  # characters, roughly: there are no tokens here
_NOT_SAID = (SUB_AGENT, INTERRUPTED, ATTACHED)
_TALK = re.compile(
    r"(?i)(?P<help>(?:help|commands|\?+|what can you do)[ ?.!]*)"
    r"|(?P<agents>(?:list |show )?(?:the )?agents[ ?.!]*)"
    r"|(?P<greeting>(?:hi|hello|hey|hallo|greetings|good (?:morning|afternoon|evening|day))\b[\w ,.!]{0,20})"
    r"|(?P<thanks>(?:thanks|thank you|thx)\b[\w ,.!]{0,20})"
)


class LocalChatModel:
    """Carries out commands; see `help`. `sleep` makes `slowly` slow."""

    def __init__(self, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._sleep = sleep

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        said, most = 0, request.max_tokens or inf
        for number, (delta, is_slow) in enumerate(compose(request).deltas()):
            if is_slow:
                await self._sleep(PAUSE)
            elif number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            said += len(delta.text if isinstance(delta, TextDelta) else delta.arguments)
            yield delta
            if ceil(said / _PER_TOKEN) >= most:
                break
        heard = len(request.instructions) + sum(message.size for message in request.messages)
        yield Usage(input_tokens=ceil(heard / _PER_TOKEN), output_tokens=ceil(said / _PER_TOKEN))
        if ceil(said / _PER_TOKEN) >= most:
            yield Stop(StopReason.LENGTH)


def compose(request: ChatRequest) -> Answer:
    """Return the answer to a request: the next step of its plan, or the last word."""
    texts, since = _last_input(request.messages)
    said = "\n".join(each for each in texts if not each.startswith(_NOT_SAID))
    if said.startswith(TIME_IS_UP):
        if summary := summarise(_last_input(request.messages[:-1])[1]):
            return Answer((_("My time is up. This is what I have:"), summary))
        return Answer((_("My time was up before anything was done."),))
    if said.startswith(HAS_ENDED):
        return Answer((_("All right, that is over."),))
    reports = [_quoted(each, SUB_AGENT) for each in texts if each.startswith(SUB_AGENT)]
    files = [_quoted(each, ATTACHED) for each in texts if each.startswith(ATTACHED)]
    if not said and (reports or files):
        return Answer(tuple(reports or files))
    *steps, last = _plan_of(said, request)
    done = sum(message.role == "assistant" for message in since)
    if done < len(steps):
        step = steps[done]
        return step._replace(texts=step.texts or (_announce(step, len(steps)),))
    opening = summarise(since) if steps else _by_the_way(texts)
    return Answer((*reports, *filter(None, [opening]), *last.texts))


def _last_input(messages: Sequence[Message]) -> tuple[list[str], Sequence[Message]]:
    """Return what was last said to the model, by the user or by sub-agents, and the messages since then."""
    for place in reversed(range(len(messages))):
        said = [block.text for block in messages[place].texts if not block.is_blank]
        texts = [text for text in said if not text.startswith(SHOWN)]
        if texts and messages[place].role == "user":
            return texts, messages[place + 1 :]
    return [], messages


def _quoted(text: str, mark: str) -> str:
    """Quote a report or a file, with what is in it. Nothing of it is a command."""
    first, _newline, rest = text.removeprefix(mark).strip().partition("\n")
    return f"{plain(first)}\n\n{quoted(rest, is_speech=True)}".rstrip()


def _by_the_way(texts: Sequence[str]) -> str:
    """Return the note on an interrupted turn in words for the person; mostly nothing (H5)."""
    noted = " ".join(text for text in texts if text.startswith(INTERRUPTED))
    note = " ".join(noted.split()).removeprefix("[INTERRUPTED] ")
    return _("By the way: %(note)s") % {"note": note[:1].lower() + note[1:]} if note else ""


def _announce(answer: Answer, steps: int) -> str:
    names = {"tool": code(answer.calls[0].tool_name), "count": len(answer.calls)}
    what = ngettext("calling %(tool)s…", "calling %(count)d tools…", len(answer.calls)) % names
    if steps == 1:
        return what[:1].upper() + what[1:]
    place = {"step": answer.step, "steps": steps, "what": what}
    return _("Step %(step)d of %(steps)d: %(what)s") % place


def _plan_of(said: str, request: ChatRequest) -> tuple[Answer, ...]:
    """Return the answers to what was said, the last of them without calls."""
    found = _TALK.fullmatch(said.strip())
    try:
        if not found and (plan := parse(said)):
            return plan
    except CommandProblem as problem:
        text = _("%(problem)s Nothing was run. Say `help` to see how it is written.")
        return (Answer((text % {"problem": problem},)),)
    match found and found.lastgroup:
        case "help":
            text = _help(request)
        case "agents":
            text = _agents(request.instructions)
        case "greeting":
            text = _(
                "Hello! I am the built-in `local` model: I run tools for you. Try `run date`, "
                "`wait 20` to have something to cancel, or `help` for all that I understand."
            )
        case "thanks":
            text = _("You are welcome.")
        case _other:
            text = _(
                "I am the built-in `local` model: I do not understand free text, only commands such as "
                "`run ls -l`, `read notes.txt`, `fetch https://example.org/` or `wait 20`. Say `help` to see them all."
            )
    return (Answer((text,)),)


def _help(request: ChatRequest) -> str:
    rows = [f"- `{row.example}`: {_(row.meaning)}" for row in COMMANDS.values()]
    names = ", ".join(code(tool.name) for tool in request.tools)
    parts = (
        _("I am the built-in `local` model. I understand these commands, one on each line:"),
        "\n".join([*rows, f"- `agents`: {_('list the agents that can be asked')}"]),
        _(
            "Several lines run side by side, save for `run`, `write` and `edit`, which each run alone; a line "
            "`then` begins the next step. An indented line belongs to the line above it."
        ),
        "```text\nwait 5\nfetch https://example.org/\nthen\nrun date\n```",
        _("The tools here: %(names)s.") % {"names": names} if names else "",
    )
    return "\n\n".join(filter(None, parts))


def _agents(instructions: str) -> str:
    _before, _mark, listed = instructions.partition(COLLEAGUES)
    agents = re.findall(r"(?m)^- (.*?)(: .*|$)", listed)
    if not agents:
        return _("There is no other agent here whom I could ask. An administrator can make some.")
    opening = _("These agents can work for you: say `ask` or `spawn`, a name, and what to do.")
    return "\n".join((opening, "", *(f"- {code(name)}{plain(text)}" for name, text in agents)))
