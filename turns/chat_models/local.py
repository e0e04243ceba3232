"""The `local` chat model, which needs no key and no network. It runs a small command language with the real tools.

It keeps no state: the user's last message is the plan, and the answers after it show how many of its steps are done.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import groupby
from math import ceil, inf

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from governance import shortened
from turns.chat_models.commands import COMMANDS, Answer, CommandProblem, parse
from turns.core.chat_model import ChatDelta, ChatRequest, Stop, StopReason, ToolCallDelta, Usage
from turns.core.messages import MAIN_ARGUMENTS, Message, ToolResultBlock, ToolUseBlock
from turns.core.summary import INSTRUCTIONS
from turns.core.texts import ATTACHED, HAS_ENDED, INTERRUPTED, SHOWN, SUB_AGENT, TIME_IS_UP

COLLEAGUES = "Other agents can work for you"  # the start of the list of agents in the instructions
PAUSE = 0.08  # seconds between two words of `slowly`
_BURST = 32  # pieces that are sent before other tasks may run
_PER_TOKEN = 4  # characters per token, for an estimate
_NOT_FROM_USER = (SUB_AGENT, INTERRUPTED, ATTACHED)
_TALK = re.compile(
    r"(?i)(?P<help>(?:help|commands|\?+|what can you do)[ ?.!]*)"
    r"|(?P<agents>(?:list |show )?(?:the )?agents[ ?.!]*)"
    r"|(?P<greeting>(?:hi|hello|hey|hallo|greetings|good (?:morning|afternoon|evening|day))\b[\w ,.!]{0,20})"
    r"|(?P<thanks>(?:thanks|thank you|thx)\b[\w ,.!]{0,20})"
)
MAX_QUOTED_LINES = 15
MAX_QUOTED_LENGTH = 1_200
MAX_REPORTS = 12
_TITLE_LENGTH = 80

# Results that are written for the model begin with a mark; sentences about the call itself begin with "It".
_MARKED = re.compile(r"\[(?:TIMEOUT|CANCELLED|ERROR|INTERRUPTED|EXPIRED)\] (.*)")
_DENIED = re.compile(r"\[DENIED\] (.*)\nIt had no effect\..*", re.DOTALL)
_LOOP = re.compile(r"\n\[LOOP\] (.*)\Z")


class LocalChatModel:
    """Carries out commands; the message `help` lists them. `sleep` is awaited between the words of `slowly`."""

    def __init__(self, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._sleep = sleep

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        if request.instructions == INSTRUCTIONS:
            return  # commands cannot express a summary
        length, max_tokens = 0, request.max_tokens or inf
        for number, (delta, is_slow) in enumerate(compose(request).deltas()):
            if is_slow:
                await self._sleep(PAUSE)
            elif number % _BURST == 0:
                await asyncio.sleep(0)
            length += len(delta.arguments if isinstance(delta, ToolCallDelta) else delta.text)
            yield delta
            if ceil(length / _PER_TOKEN) >= max_tokens:
                break
        input_length = len(request.instructions) + sum(each.size for each in request.messages)
        output_tokens = ceil(length / _PER_TOKEN)
        yield Usage(input_tokens=ceil(input_length / _PER_TOKEN), output_tokens=output_tokens)
        if output_tokens >= max_tokens:
            yield Stop(StopReason.LENGTH)


def compose(request: ChatRequest) -> Answer:
    """Return the answer to a request: the next step of its plan, or the last answer."""
    texts, since = _last_input(request.messages)
    text = "\n".join(each for each in texts if not each.startswith(_NOT_FROM_USER))
    if text.startswith(TIME_IS_UP):
        if summary := summarise(_last_input(request.messages[:-1])[1]):
            return Answer((_("My time is up. This is what I have:"), summary))
        return Answer((_("My time was up before I had any results."),))
    if text.startswith(HAS_ENDED):
        return Answer((_("Okay, it has stopped."),))
    reports = [_quoted(each, SUB_AGENT) for each in texts if each.startswith(SUB_AGENT)]
    files = [_quoted(each, ATTACHED) for each in texts if each.startswith(ATTACHED)]
    if not text and (reports or files):
        return Answer(tuple(reports or files))
    *steps, last = _plan_of(text, request)
    index = sum(message.role == "assistant" for message in since)
    if index < len(steps):
        step = steps[index]
        return step._replace(texts=step.texts or (_announce(step, len(steps)),))
    opening = summarise(since) if steps else _by_the_way(texts)
    return Answer((*reports, *filter(None, [opening]), *last.texts))


def _last_input(messages: Sequence[Message]) -> tuple[list[str], Sequence[Message]]:
    """Return the texts of the last message to the model, from the user or sub-agents, and the messages since then."""
    for index in reversed(range(len(messages))):
        texts = [
            block.text
            for block in messages[index].texts
            if not block.is_blank and not block.text.startswith(SHOWN)
        ]
        if texts and messages[index].role == "user":
            return texts, messages[index + 1 :]
    return [], messages


def _quoted(text: str, mark: str) -> str:
    """Quote a report or a file, so that no line of it is parsed as a command."""
    first, _newline, rest = text.removeprefix(mark).strip().partition("\n")
    return f"{plain(first)}\n\n{quoted(rest, is_speech=True)}".rstrip()


def _by_the_way(texts: Sequence[str]) -> str:
    """Return the note on an interrupted turn as a sentence for the person; empty if there is none (H5)."""
    notes = " ".join(text for text in texts if text.startswith(INTERRUPTED))
    note = " ".join(notes.split()).removeprefix("[INTERRUPTED] ")
    return _("By the way: %(note)s") % {"note": note[:1].lower() + note[1:]} if note else ""


def _announce(answer: Answer, steps: int) -> str:
    values = {"tool": code(answer.calls[0].tool_name), "count": len(answer.calls)}
    text = ngettext("calling %(tool)s…", "calling %(count)d tools…", len(answer.calls)) % values
    if steps == 1:
        return text[:1].upper() + text[1:]
    values = {"step": answer.step, "steps": steps, "what": text}
    return _("Step %(step)d of %(steps)d: %(what)s") % values


def _plan_of(message: str, request: ChatRequest) -> tuple[Answer, ...]:
    """Return the answers to a message, the last one without calls."""
    talk = _TALK.fullmatch(message.strip())
    try:
        if not talk and (plan := parse(message)):
            return plan
    except CommandProblem as problem:
        text = _("%(problem)s Nothing was run. Send `help` to see the syntax.")
        return (Answer((text % {"problem": problem},)),)
    match talk and talk.lastgroup:
        case "help":
            text = _help(request)
        case "agents":
            text = _agents(request.instructions)
        case "greeting":
            text = _(
                "Hello! I am the built-in `local` model: I run tools for you. Try `run date`, "
                "`wait 20` to have something to cancel, or `help` for all commands."
            )
        case "thanks":
            text = _("You are welcome.")
        case _other:
            text = _(
                "I am the built-in `local` model: I do not understand free text, only commands such as "
                "`run ls -l`, `read notes.txt`, `fetch https://example.org/` or `wait 20`. Send `help` to see all of them."
            )
    return (Answer((text,)),)


def _help(request: ChatRequest) -> str:
    rows = [f"- `{row.example}`: {_(row.meaning)}" for row in COMMANDS.values()]
    names = ", ".join(code(tool.name) for tool in request.tools)
    parts = (
        _("I am the built-in `local` model. I understand these commands, one per line:"),
        "\n".join([*rows, f"- `agents`: {_('list the available agents')}"]),
        _(
            "Several lines run in parallel, except `run`, `write` and `edit`, which each run alone. A `then` "
            "line begins the next step. An indented line belongs to the line above it."
        ),
        "```text\nwait 5\nfetch https://example.org/\nthen\nrun date\n```",
        _("The tools here: %(names)s.") % {"names": names} if names else "",
    )
    return "\n\n".join(filter(None, parts))


def _agents(instructions: str) -> str:
    _before, _mark, colleagues = instructions.partition(COLLEAGUES)
    agents = re.findall(r"(?m)^- (.*?)(: .*|$)", colleagues)
    if not agents:
        return _("There are no other agents here. An administrator can add some.")
    opening = _("These agents are available. Send `ask` or `spawn`, followed by a name and a task.")
    return "\n".join((opening, "", *(f"- {code(name)}{plain(text)}" for name, text in agents)))


def summarise(since: Sequence[Message]) -> str:
    """Return a summary in Markdown of the calls since the user's message: how each ended, with short outputs quoted."""
    calls = {call.id: call for message in since for call in message.tool_uses}
    results = [result for message in since for result in message.tool_results]
    outcomes = groupby(results, key=lambda result: _outcome(calls[result.tool_use_id], result))
    groups = [(outcome, list(alike)) for outcome, alike in outcomes]
    counts = {"good": sum(not each.is_error for each in results), "all": len(results)}
    paragraphs = [_("%(good)d of %(all)d calls succeeded.") % counts] if len(results) > 1 else []
    for (title, sentence, output), alike in groups[:MAX_REPORTS]:
        times = _(" (%(count)d times)") % {"count": len(alike)} if len(alike) > 1 else ""
        paragraphs += [title + sentence + times, output]
        if warnings := [text for each in alike for text in _LOOP.findall(each.content)]:
            paragraphs.append(_("Loop detector: %(warning)s") % {"warning": plain(warnings[-1])})
    if more := sum(len(alike) for _outcome, alike in groups[MAX_REPORTS:]):
        rest = ngettext(
            "… and %(count)d more call: see its card.",
            "… and %(count)d more calls: see their cards.",
            more,
        )
        paragraphs.append(rest % {"count": more})
    return "\n\n".join(filter(None, paragraphs))


def _outcome(call: ToolUseBlock, result: ToolResultBlock) -> tuple[str, str, str]:
    """Return the title of a call, a sentence on how it ended, and its output without the advice for the model."""
    content = _LOOP.sub("", result.content)
    arguments = ("seconds",) if call.name == "wait" else MAIN_ARGUMENTS
    value = next((call.input[name] for name in arguments if name in call.input), "")
    text = f"{value:g} s" if isinstance(value, int | float) else " ".join(str(value).split())
    title = f"**{code(shortened(text, limit=_TITLE_LENGTH))}** — " if text else ""
    names = {"tool": code(call.name), "agent": code(str(call.input.get("agent", "")))}
    if result.is_error:
        return title, *_failure(call.name, content)
    if call.name == "sessions_ask":
        return title, _("%(agent)s answered:") % names, quoted(content, is_speech=True)
    if call.name == "sessions_spawn":
        return title, _("%(agent)s is working; its report will appear here.") % names, ""
    return title, _("%(tool)s succeeded.") % names, quoted(content)


def _failure(tool_name: str, content: str) -> tuple[str, str]:
    first, _newline, rest = content.partition("\n")
    if denied := _DENIED.fullmatch(content):
        text, rest = denied[1], ""
    elif marked := _MARKED.fullmatch(first):
        main, *others = re.split(r"(?<=[.!?]) +", marked[1])
        text = " ".join([main, *(each for each in others if each.startswith("It "))])
    else:
        reason = {"tool": code(tool_name), "reason": plain(first)}
        return _("%(tool)s failed: %(reason)s") % reason, quoted(rest)
    sentence = plain(text).replace(plain(f'Tool "{tool_name}"'), code(tool_name), 1)
    return sentence, quoted(rest.removeprefix("Partial output before it was ended:\n"))


def quoted(text: str, *, is_speech: bool = False) -> str:
    """Return the start of an output as a code block, or the start of another agent's message as a quotation."""
    if not text.strip():
        return ""
    whole = "\n".join(text.strip("\n").splitlines())
    excerpt = "\n".join(whole.split("\n")[:MAX_QUOTED_LINES])[:MAX_QUOTED_LENGTH]
    rest = f"\n\n{_('The card shows the rest.')}" if excerpt != whole else ""
    if is_speech:
        return "\n".join(f"> {line}".rstrip() for line in excerpt.split("\n")) + rest
    fence = _backticks(excerpt, least=3)
    return f"{fence}text\n{excerpt}\n{fence}{rest}"


def code(text: str) -> str:
    """Return the text as inline code, even if it contains backticks."""
    fence = _backticks(text)
    gap = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{gap}{text}{gap}{fence}"


def _backticks(text: str, *, least: int = 1) -> str:
    """Return a run of backticks that is longer than any run in the text."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def plain(text: str) -> str:
    """Escape the text, so that Markdown shows it unchanged."""
    return re.sub(r"([\\`*_\[\]<>#|~])", r"\\\1", text)
