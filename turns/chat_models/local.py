"""The `local` chat model: no key, no network; it carries out a small command language with the real tools.

It keeps no state: every answer is a function of the request. The last thing that the user said is the plan, the
answers since then tell how far it has come.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from turns.chat_models.commands import PlannedCall, Speech
from turns.chat_models.guide import agents_in, answer_to, by_the_way, help_text, problem_text
from turns.chat_models.plans import Intent, Plan, parse
from turns.chat_models.summaries import CallResult, cited, code, plain, summarise
from turns.core.chat_model import (
    ChatDelta,
    ChatRequest,
    Stop,
    StopReason,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from turns.core.messages import Message
from turns.core.prompt_markers import (
    ATTACHED,
    HAS_ENDED,
    INTERRUPTED,
    SHOWN,
    SUB_AGENT,
    TIME_IS_UP,
)

Sleep = Callable[[float], Awaitable[Any]]

PAUSE = 0.08  # seconds between two words of `slowly`
_NOT_SAID = (SUB_AGENT, INTERRUPTED, ATTACHED)
_TEXT_PIECE = 24
_ARGUMENTS_PIECE = 16
_AT_ONCE = 32  # pieces between two moments in which others may work
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer before it is streamed: what is said, then what is called."""

    speeches: tuple[Speech, ...] = ()
    calls: tuple[PlannedCall, ...] = ()
    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """The last thing that was said to the model: by the user, by sub-agents; and the messages since then."""

    text: str = ""
    note: str = ""
    reports: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    since: Sequence[Message] = ()


class LocalChatModel:
    """Carries out commands; see `help`. `sleep` makes `slowly` slow."""

    def __init__(self, *, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Answer the request piece by piece."""
        said, is_cut_off = 0, False
        for pause, delta in _deltas(compose(request)):
            if pause is not None:
                await (self._sleep(pause) if pause else asyncio.sleep(0))
            said += len(delta.text if isinstance(delta, TextDelta) else delta.arguments)
            yield delta
            is_cut_off = request.max_tokens is not None and _tokens(said) >= request.max_tokens
            if is_cut_off:
                break
        yield Usage(input_tokens=_count_tokens(request), output_tokens=_tokens(said))
        if is_cut_off:
            yield Stop(StopReason.LENGTH)


def _deltas(answer: Answer) -> "Iterator[tuple[float | None, TextDelta | ToolCallDelta]]":
    """Yield an answer in pieces, each with the seconds to wait before it. 0 lets others work, None is no wait."""
    for place, speech in enumerate(answer.speeches):
        if place:
            yield None, TextDelta("\n\n")
        for number, piece in enumerate(_pieces_of(speech)):
            others_work = 0.0 if number % _AT_ONCE == 0 else None
            yield PAUSE if speech.is_slow else others_work, TextDelta(piece)
    for index, call in enumerate(answer.calls):
        pause: float | None = 0.0
        for delta in _call_deltas(call, step=answer.step, index=index):
            yield pause, delta
            pause = None


def compose(request: ChatRequest) -> Answer:
    """Return the answer to a request: the next step of its plan, or the last word."""
    received = _last_input(request.messages)
    reports = tuple(_quoted(received.reports, mark=SUB_AGENT))
    if received.text.startswith(TIME_IS_UP):
        return Answer(speeches=(Speech(text=_report(request.messages)),))
    if received.text.startswith(HAS_ENDED):
        return Answer(speeches=(Speech(text=_("All right, that is over.")),))
    if not received.text and (found := reports or tuple(_quoted(received.files, mark=ATTACHED))):
        return Answer(speeches=found)
    plan = _plan_of(received.text, get_language())
    done = sum(message.role == "assistant" for message in received.since)
    if done < len(plan.steps):
        step = plan.steps[done]
        speeches = step.speeches or (Speech(text=_announce(plan, done)),)
        return Answer(speeches=speeches, calls=step.calls, step=done + 1)
    last = _final_speeches(plan, received, request=request)
    return Answer(speeches=(*reports, *last))


@lru_cache(maxsize=32)  # each step of a turn asks anew
def _plan_of(text: str, _language: str) -> Plan:
    """Return the plan of a message; what it says of a problem is in a language."""
    return parse(text)


def _final_speeches(plan: Plan, received: _Input, *, request: ChatRequest) -> Iterator[Speech]:
    if plan.steps:
        yield Speech(text=summarise(_results(received.since)))
    elif note := by_the_way(received.note):
        yield Speech(text=note)
    yield from plan.closing
    if plan.problem:
        yield Speech(text=problem_text(plan.problem))
    elif plan.intent is Intent.HELP:
        yield Speech(text=help_text(request.tools))
    elif plan.intent is Intent.AGENTS:
        yield Speech(text=agents_in(request.instructions))
    elif plan.intent is not Intent.RUN:
        yield Speech(text=answer_to(plan.intent))


def _last_input(messages: Sequence[Message]) -> _Input:
    for place in range(len(messages) - 1, -1, -1):
        blocks = [block for block in messages[place].texts if not block.is_blank]
        texts = [block.text for block in blocks if not block.text.startswith(SHOWN)]
        if texts and messages[place].role == "user":
            return _Input(
                text="\n".join(text for text in texts if not text.startswith(_NOT_SAID)),
                note="\n".join(text for text in texts if text.startswith(INTERRUPTED)),
                reports=tuple(text for text in texts if text.startswith(SUB_AGENT)),
                files=tuple(text for text in texts if text.startswith(ATTACHED)),
                since=messages[place + 1 :],
            )
    return _Input(since=messages)


def _quoted(texts: Iterable[str], *, mark: str) -> Iterator[Speech]:
    """Quote a report or a file, with what is in it. Nothing of it is a command."""
    for text in texts:
        first, _newline, rest = text.removeprefix(mark).strip().partition("\n")
        yield Speech(text=f"{plain(first)}\n\n{cited(rest)}".rstrip())


def _report(messages: Sequence[Message]) -> str:
    """What was done until the time was up, for whoever has given the work."""
    results = _results(_last_input(messages[:-1]).since)
    if not results:
        return _("My time was up before anything was done.")
    return "\n\n".join((_("My time is up. This is what I have:"), summarise(results)))


def _results(since: Sequence[Message]) -> list[CallResult]:
    """Return the calls since the user spoke, each with its result."""
    results = {block.tool_use_id: block for message in since for block in message.tool_results}
    return [
        CallResult(
            tool_name=call.name,
            input=call.input,
            content=results[call.id].content,
            is_error=results[call.id].is_error,
        )
        for message in since
        for call in message.tool_uses
        if call.id in results
    ]


def _announce(plan: Plan, done: int) -> str:
    calls = plan.steps[done].calls
    if len(calls) == 1:
        what = _("calling %(tool)s…") % {"tool": code(calls[0].tool_name)}
    else:
        what = ngettext("calling %(count)d tool…", "calling %(count)d tools…", len(calls)) % {
            "count": len(calls)
        }
    if len(plan.steps) == 1:
        return what[:1].upper() + what[1:]
    place = {"step": done + 1, "steps": len(plan.steps), "what": what}
    return _("Step %(step)d of %(steps)d: %(what)s") % place


def _pieces_of(speech: Speech) -> Iterator[str]:
    """Yield words where they are to be watched, else pieces of one size."""
    if speech.is_slow:
        words = speech.text.split(" ")
        yield from (f"{word} " for word in words[:-1])
        yield words[-1]
    else:
        yield from _pieces(speech.text, _TEXT_PIECE)


def _call_deltas(call: PlannedCall, *, step: int, index: int) -> Iterator[ToolCallDelta]:
    """Yield the call as providers do: first its id and name, then its arguments in pieces."""
    yield ToolCallDelta(index=index, id=f"call_{step}_{index + 1}", name=call.tool_name)
    for piece in _pieces(json.dumps(dict(call.input), ensure_ascii=False), _ARGUMENTS_PIECE):
        yield ToolCallDelta(index=index, arguments=piece)


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _count_tokens(request: ChatRequest) -> int:
    return _tokens(len(request.instructions) + sum(message.size for message in request.messages))


def _tokens(characters: int) -> int:
    """A rough count: there are no tokens here."""
    return -(-characters // _CHARACTERS_PER_TOKEN)
