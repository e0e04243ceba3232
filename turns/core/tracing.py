"""The spans of a turn: `invoke_agent`, its steps, and a `chat` in each step. Governance traces the tool calls."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from governance import CancellationToken, Span, enclosing
from turns.core.chat_model import ChatRequest, Reply, StopReason
from turns.core.exceptions import ChatModelError
from turns.core.messages import Block, Message, TextBlock, ToolResultBlock, ToolUseBlock
from turns.core.ports import ClaimedTurn
from turns.core.turns import TurnEnding, TurnStatus

_PROVIDERS = {"google": "gcp.gen_ai"}  # for the others, the conventions use the same names
_FINISH_REASONS = {
    StopReason.END: "stop",
    StopReason.TOOL_CALLS: "tool_call",
    StopReason.LENGTH: "length",
}
_FAILURES = {TurnStatus.TIMED_OUT: "timeout", TurnStatus.INTERRUPTED: "interrupted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """Data for the spans of a turn: the name of its chat model, and whether they include texts (`shows_content`)."""

    chat_model: str = ""
    shows_content: bool = False


UNTRACED = Traced()
_described: ContextVar[Traced] = ContextVar("traced_turn", default=UNTRACED)


def turn_span(turn: ClaimedTurn) -> Span:
    """Start the span of a turn, as a child of the span that received its message in any process."""
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
    """Add the chat model and the message to the turn's current span. A cancel of `token` is noted in it too."""
    span = enclosing()
    if span is None:
        return
    _described.set(traced)  # for the requests, which run in child tasks
    span.set(_names(traced.chat_model))
    token.on_cancel(span.note_request)
    span.shows_content = traced.shows_content
    message = Message(role="user", content=(TextBlock(text=turn.user_message),))
    span.show(lambda: {"gen_ai.input.messages": _plain([message])})


def note_ending(span: Span, ending: TurnEnding | None, *, usage: Mapping[str, int]) -> None:
    """Record the turn's ending. None means that this process no longer owns the turn."""
    span.set(_tokens(usage.get("input_tokens", 0), usage.get("output_tokens", 0)))
    if ending is None:
        span.fail("fenced")
        return
    span.set({"turnkeeper.turn.status": ending.status.value})
    failure = ending.error_code or _FAILURES.get(ending.status, "")
    if failure or ending.status is TurnStatus.FAILED:
        span.fail(failure or "error")


def step_span(number: int) -> Span:
    return Span("step", {"turnkeeper.step": number})


@contextmanager
def chat_span(request: ChatRequest, reply: Reply, *, token: CancellationToken) -> Iterator[None]:
    """Trace a request to the chat model, with the answer collected in `reply`."""
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
    """Return the provider and the model from the name in the settings. The name of a site's own model is used as both."""
    provider, _colon, model = chat_model.partition(":")
    return {
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": model or chat_model,
    }


def _tokens(input_tokens: int, output_tokens: int) -> dict[str, int | None]:
    return {
        "gen_ai.usage.input_tokens": input_tokens or None,  # 0 means unknown
        "gen_ai.usage.output_tokens": output_tokens or None,
    }


def _finish_reason(reply: Reply) -> str:
    reason = reply.stop_reason
    if reason is StopReason.END and reply.has_calls:  # not every chat model reports it
        reason = StopReason.TOOL_CALLS
    return _FINISH_REASONS[reason]


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
