"""The span of a tool call: `execute_tool`, from the moment at which it is executed to its outcome."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias

from governance.core.calls import CallStatus, ErrorType, ToolOutcome
from governance.core.live_call import LiveCall
from governance.core.tracing import OPERATION, Span, is_traced, tracer

P = ParamSpec("P")
Execute: TypeAlias = Callable[Concatenate[Any, LiveCall, P], Coroutine[Any, Any, ToolOutcome]]

UNKNOWN = "unknown"  # the model has made up the name of the tool, so it is a text of the model
_NO_FAILURES = {ErrorType.CANCELLED, ErrorType.NOT_STARTED, ErrorType.DENIED}


def traced(execute: Execute[P]) -> Execute[P]:
    """Let an executor's method give each call a span. The body, and what it asks of MCP servers, is inside."""
    if tracer is None:
        return execute

    @wraps(execute)
    def execute_traced(
        executor: Any, live: LiveCall, /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, ToolOutcome]:
        run = execute_in_span if is_traced() else execute
        return run(executor, live, *args, **kwargs)

    async def execute_in_span(
        executor: Any, live: LiveCall, /, *args: P.args, **kwargs: P.kwargs
    ) -> ToolOutcome:
        is_known = live.own_tool is not None or live.call.tool_name in executor.registry
        with _span_of(live, name=live.call.tool_name if is_known else UNKNOWN) as span:
            forget = live.token.on_cancel(span.note_request)
            try:
                outcome = await execute(executor, live, *args, **kwargs)
            finally:
                forget()
            _note_outcome(span, outcome)
        return outcome

    return execute_traced


def _span_of(live: LiveCall, *, name: str) -> Span:
    span = Span(
        f"execute_tool {name}",
        {
            OPERATION: "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": live.id,
        },
    )
    span.show(lambda: {"gen_ai.tool.call.arguments": dict(live.call.input)})
    return span


def _note_outcome(span: Span, outcome: ToolOutcome) -> None:
    limit = outcome.limit_reached
    span.set(
        {
            "turnkeeper.call.status": outcome.status.value,
            "turnkeeper.call.disposition": outcome.disposition.value,
            "turnkeeper.call.limit": limit and limit.value,
            "turnkeeper.call.timeout": outcome.timeout,
            "turnkeeper.call.queued": outcome.queued,
        }
    )
    span.show(lambda: {"gen_ai.tool.call.result": outcome.result})
    if outcome.status is CallStatus.EXPIRED:  # nobody cancels a question that nobody answers
        span.event("turnkeeper.timeout")
    if outcome.error_type is not None and outcome.error_type not in _NO_FAILURES:
        span.fail(outcome.error_type.value)
