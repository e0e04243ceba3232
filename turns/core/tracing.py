"""The spans of a turn: `invoke_agent`, in it the steps, in each step its `chat`. Governance traces its tool calls."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from governance import CancellationToken, Span, enclosing, is_traced
from turns.core.chat_model import ChatRequest, Reply, StopReason
from turns.core.exceptions import ChatModelError
from turns.core.messages import Block, Message, TextBlock, ToolResultBlock, ToolUseBlock
from turns.core.ports import ClaimedTurn
from turns.core.turns import TurnEnding, TurnStatus

_PROVIDERS = {"google": "gcp.gen_ai"}  # the others have our names in the conventions, too
_FINISH_REASONS = {
    StopReason.END: "stop",
    StopReason.TOOL_CALLS: "tool_call",
    StopReason.LENGTH: "length",
}
_FAILURES = {TurnStatus.TIMED_OUT: "timeout", TurnStatus.INTERRUPTED: "interrupted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What the spans of a turn may say: its chat model's name in the settings. It says texts only if it `shows_content`."""

    chat_model: str = ""
    shows_content: bool = False


UNTRACED = Traced()
_NO_SPAN = nullcontext()
_described: ContextVar[Traced] = ContextVar("what is traced of this turn", default=UNTRACED)


def turn_span(turn: ClaimedTurn) -> Span:
    """Begin the span of a turn: below the one in which its message was taken, in whatever process that was."""
    return Span(
        f"invoke_agent {turn.agent}",
        {"gen_ai.operation.name": "invoke_agent"},
        within=turn.traceparent,
        shared={
            "gen_ai.agent.name": turn.agent,
            "gen_ai.conversation.id": str(turn.conversation_id),
            "turnkeeper.turn.id": str(turn.id),
        },
    )


def describe_turn(turn: ClaimedTurn, traced: Traced, *, token: CancellationToken) -> None:
    """Say on the turn's span, which encloses this, what is known by now; `token` ends the turn's work."""
    span = enclosing()
    if span is None:
        return
    _described.set(traced)  # for the requests, which are made in tasks of this one
    span.set(_names(traced.chat_model))
    token.on_cancel(span.note_request)
    span.shows_content = traced.shows_content
    said = Message(role="user", content=(TextBlock(text=turn.user_message),))
    span.show(lambda: {"gen_ai.input.messages": _plain([said])})


def note_ending(span: Span, ending: TurnEnding | None, *, usage: Mapping[str, int]) -> None:
    """Say how the turn ends; None = it is not ours any more."""
    span.set(_tokens(usage.get("input_tokens", 0), usage.get("output_tokens", 0)))
    if ending is None:
        span.fail("fenced")
        return
    span.set({"turnkeeper.turn.status": ending.status.value})
    failure = ending.error_code or _FAILURES.get(ending.status, "")
    if failure or ending.status is TurnStatus.FAILED:
        span.fail(failure or "error")


def step_span(number: int) -> AbstractContextManager[object]:
    return Span("step", {"turnkeeper.step": number}) if is_traced() else _NO_SPAN


def chat_span(
    request: ChatRequest, reply: Reply, *, token: CancellationToken
) -> AbstractContextManager[None]:
    """Trace a request to the chat model, whose answer is collected in `reply`, however it ends."""
    return _chat_span(request, reply, token=token) if is_traced() else _NO_SPAN


@contextmanager
def _chat_span(request: ChatRequest, reply: Reply, *, token: CancellationToken) -> Iterator[None]:
    names = _names(_described.get().chat_model)
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": request.max_tokens,
        **names,
    }
    with Span(f"chat {names['gen_ai.request.model']}", attributes, is_client=True) as span:
        forget = token.on_cancel(span.note_request)
        span.show(lambda: _request(request))
        try:
            yield
            span.set({"gen_ai.response.finish_reasons": [_finish_reason(reply)]})
        except ChatModelError as error:
            span.fail(error.code)
            raise
        finally:
            forget()
            span.set(_tokens(reply.usage.input_tokens, reply.usage.output_tokens))
            span.show(lambda: {"gen_ai.output.messages": [_answer(reply)]})


def _names(chat_model: str) -> dict[str, str]:
    """The provider and its model, by the name in the settings; a model of the site's own is both."""
    provider, _colon, model = chat_model.partition(":")
    return {
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": model or chat_model,
    }


def _tokens(taken: int, given: int) -> dict[str, int | None]:
    """What was used, where it is known."""
    return {
        "gen_ai.usage.input_tokens": taken or None,
        "gen_ai.usage.output_tokens": given or None,
    }


def _finish_reason(reply: Reply) -> str:
    """Why the answer ended; not every chat model says that it did for its calls."""
    said = reply.stop_reason
    ended_for_calls = said is StopReason.END and reply.has_calls
    return _FINISH_REASONS[StopReason.TOOL_CALLS if ended_for_calls else said]


def _request(request: ChatRequest) -> dict[str, Any]:
    return {
        "gen_ai.system_instructions": [{"type": "text", "content": request.instructions}],
        "gen_ai.input.messages": _plain(request.messages),
    }


def _answer(reply: Reply) -> dict[str, Any]:
    calls = [
        {"type": "tool_call", "id": id, "name": name, "arguments": arguments}
        for id, name, arguments in reply.asked_for
    ]
    return {
        "role": "assistant",
        "parts": [{"type": "text", "content": reply.text}, *calls],
        "finish_reason": _finish_reason(reply),
    }


def _plain(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [
        {"role": message.role, "parts": [_part(block) for block in message.content]}
        for message in messages
    ]


def _part(block: Block) -> dict[str, Any]:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "content": text}
        case ToolUseBlock():
            return {
                "type": "tool_call",
                "id": block.id,
                "name": block.name,
                "arguments": dict(block.input),
            }
        case ToolResultBlock():
            return {
                "type": "tool_call_response",
                "id": block.tool_use_id,
                "response": block.content,
            }
        case _:
            modality, kind = block.type, block.media_type
            return {
                "type": "file",
                "modality": modality,
                "mime_type": kind,
                "file_id": block.attachment_id,
            }
