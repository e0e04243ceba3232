"""The `local` chat model: no key, no network; it carries out a small command language with the real tools.

It keeps no state: every answer is a function of the request. The last thing that the user said is the plan, the
answers since then tell how far it has come.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from turns.chat_models.commands import PlannedCall, Speech
from turns.chat_models.guide import answer_to, help_text, note_in, problem_text
from turns.chat_models.plans import Intent, Plan, parse
from turns.chat_models.summaries import CallResult, code, summarise
from turns.core.chat_model import ChatDelta, ChatRequest, TextDelta, ToolCallDelta, Usage
from turns.core.messages import Message

Sleep = Callable[[float], Awaitable[Any]]

PAUSE = 0.08  # seconds between two words of `slowly`
_TEXT_PIECE = 24
_ARGUMENTS_PIECE = 16
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer before it is streamed: what is said, then what is called."""

    speeches: tuple[Speech, ...] = ()
    calls: tuple[PlannedCall, ...] = ()
    step: int = 1


class LocalChatModel:
    """Carries out commands; see `help`. `pause` in seconds and `sleep` make `slowly` slow."""

    def __init__(self, *, pause: float = PAUSE, sleep: Sleep = asyncio.sleep) -> None:
        self._pause = pause
        self._sleep = sleep

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Answer the request piece by piece."""
        said = 0
        async with aclosing(self._deltas(compose(request))) as deltas:
            async for delta in deltas:
                said += len(delta.text if isinstance(delta, TextDelta) else delta.arguments)
                yield delta
        yield Usage(input_tokens=_count_tokens(request), output_tokens=_tokens(said))

    async def _deltas(self, answer: Answer) -> AsyncGenerator[TextDelta | ToolCallDelta, None]:
        for place, speech in enumerate(answer.speeches):
            if place:
                yield TextDelta("\n\n")
            for piece in _pieces_of(speech):
                await (self._sleep(self._pause) if speech.is_slow else asyncio.sleep(0))
                yield TextDelta(piece)
        for index, call in enumerate(answer.calls):
            for delta in _call_deltas(call, step=answer.step, index=index):
                await asyncio.sleep(0)
                yield delta


def compose(request: ChatRequest) -> Answer:
    """Return the answer to a request: the next step of its plan, or the last word."""
    text, since = _last_exchange(request.messages)
    plan = parse(text)
    done = sum(message.role == "assistant" for message in since)
    if done < len(plan.steps):
        step = plan.steps[done]
        speeches = step.speeches or (Speech(text=_announce(plan, done)),)
        return Answer(speeches=speeches, calls=step.calls, step=done + 1)
    return Answer(speeches=tuple(_last_word(plan, since, request=request)))


def _last_word(plan: Plan, since: Sequence[Message], *, request: ChatRequest) -> Iterator[Speech]:
    if plan.steps:
        yield Speech(text=summarise(_results(since)))
    elif note := note_in(request.instructions):
        yield Speech(text=note)
    yield from plan.closing
    if plan.problem:
        yield Speech(text=problem_text(plan.problem))
    elif plan.intent is Intent.HELP:
        yield Speech(text=help_text(request.tools))
    elif plan.intent is not Intent.RUN:
        yield Speech(text=answer_to(plan.intent))


def _last_exchange(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """Return the last text of the user and the messages since then."""
    for place in range(len(messages) - 1, -1, -1):
        texts = [block.text for block in messages[place].texts if not block.is_blank]
        if texts and messages[place].role == "user":
            return "\n".join(texts), messages[place + 1 :]
    return "", messages


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
        what = _("running %(tool)s…") % {"tool": code(calls[0].tool_name)}
    else:
        what = ngettext("running %(count)d tool…", "running %(count)d tools…", len(calls)) % {
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
    blocks = (block for message in request.messages for block in message.content)
    return _tokens(
        len(request.instructions) + sum(len(json.dumps(block.to_json())) for block in blocks)
    )


def _tokens(characters: int) -> int:
    """A rough count: there are no tokens here."""
    return -(-characters // _CHARACTERS_PER_TOKEN)
