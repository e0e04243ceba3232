"""OpenTelemetry spans. Without the OpenTelemetry API, this module does nothing.

Names follow the semantic conventions for generative AI, and attributes outside these conventions start with
`turnkeeper.`. Ending a span also ends its open child spans.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeAlias

from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:  # it comes with the `otel` extra
    tracer = None
else:
    tracer = trace.get_tracer("django-turnkeeper")
    _w3c = TraceContextTextMapPropagator()
    _KEY = contexts.create_key("turnkeeper-span")

logger = logging.getLogger(__name__)

Attributes: TypeAlias = Mapping[str, str | bool | int | float | Sequence[str] | None]

OPERATION = "gen_ai.operation.name"


class Span:
    """A span that starts when it is created. Inside `with`, it is the current span.

    `within` is the `traceparent` of a remote parent; by default, the current span is the parent. Child spans inherit
    the `shared` attributes and `shows_content`, which allows attributes to contain text from people, models and tools.
    """

    def __init__(
        self,
        name: str,
        attributes: Attributes,
        *,
        is_client: bool = False,
        within: str = "",
        shared: Attributes | None = None,
    ) -> None:
        parent = self._above = enclosing()
        self.shows_content: bool = parent is not None and parent.shows_content
        self._shared: Attributes = {**(parent._shared if parent else {}), **(shared or {})}
        self._below: set[Span] = set()
        self._requests: set[Cancellation] = set()
        self._error_type = ""
        self._attached: Any = None
        self._span: Any = None
        if parent is None or not parent._is_over:  # an ended parent accepts no more child spans
            self._span = _start(
                name, {**self._shared, **attributes}, is_client=is_client, within=within
            )
        self._is_over: bool = self._span is None
        if parent is not None and not self._is_over:
            parent._below.add(self)

    def __enter__(self) -> Self:
        if not self._is_over:
            context = trace.set_span_in_context(self._span)
            self._attached = contexts.attach(contexts.set_value(_KEY, self, context))
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if (
            self._attached is not None and enclosing() is self
        ):  # otherwise, this context has already been left
            contexts.detach(self._attached)
        if isinstance(error, asyncio.CancelledError):
            if not self._requests:
                self.fail("cancelled")
        elif error is not None:
            self.fail(type(error).__name__)
        self.end()

    @property
    def trace_id(self) -> str:
        """The trace id in hexadecimal, which is empty if the trace is not sampled."""
        span_context = self._span.get_span_context() if self._span else None
        return (
            trace.format_trace_id(span_context.trace_id)
            if span_context and span_context.trace_flags.sampled
            else ""
        )

    def set(self, attributes: Attributes) -> None:
        """Add attributes, except those whose value is `None`."""
        if not self._is_over:
            with _harmless():
                self._span.set_attributes(_given(attributes))

    def show(self, content: Callable[[], Mapping[str, Any]]) -> None:
        """Add the attributes that `content` returns, if content is allowed. Otherwise `content` is not called.

        Values other than strings are added as JSON.
        """
        if self.shows_content and not self._is_over and self._span.is_recording():
            with _harmless():
                self._span.set_attributes({name: _written(v) for name, v in content().items()})

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Add an event at the current time. This may be called from any thread."""
        if not self._is_over:
            with _harmless():
                self._span.add_event(name, _given(attributes or {}))

    def note_request(self, request: Cancellation) -> None:
        """Record a cancel or a timeout, once for each request. This may be called from any thread."""
        if request in self._requests:
            return
        self._requests.add(request)
        if request.reason is CancelReason.TIMEOUT:
            self.event("turnkeeper.timeout")
            return
        reason, source = request.reason.value, request.source.value
        self.event(
            "turnkeeper.cancel",
            {"turnkeeper.cancel.reason": reason, "turnkeeper.cancel.source": source},
        )

    def fail(self, error_type: str) -> None:
        """Mark the span as failed with an error type, but without an exception's text. Later calls are ignored."""
        if self._error_type or self._is_over:
            return
        self._error_type = error_type
        with _harmless():
            self._span.set_attribute("error.type", error_type)
            self._span.set_status(trace.StatusCode.ERROR)

    def end(self) -> None:
        """End the open child spans, and then this span."""
        if self._is_over:
            return
        for span in tuple(self._below):
            span.set({"turnkeeper.abandoned": True})
            span.end()
        if self._above is not None:
            self._above._below.discard(self)
        self._is_over = True
        with _harmless():
            self._span.end()


def enclosing() -> Span | None:
    """Return the innermost of this project's spans around the running code."""
    span = contexts.get_value(_KEY) if tracer is not None else None
    return span if isinstance(span, Span) else None


def traceparent() -> str:
    """Return the W3C `traceparent` of the current span, even if another library started it, or an empty string."""
    carrier: dict[str, str] = {}
    if tracer is not None:
        _w3c.inject(carrier)
    return carrier.get("traceparent", "")


def _written(value: Any) -> str:
    """Return the value as a string that an exporter can encode. Values other than strings become JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(value, default=str)


def _start(name: str, attributes: Attributes, *, is_client: bool, within: str) -> Any:
    """Start and return a span. Return None without OpenTelemetry, or if the span has no valid context to pass on."""
    span: Any = None
    if tracer is None:
        return None
    with _harmless():
        span = tracer.start_span(
            name,
            _w3c.extract({"traceparent": within}) if within else None,
            trace.SpanKind.CLIENT if is_client else trace.SpanKind.INTERNAL,
            _given(attributes),
        )
    return span if span is not None and span.get_span_context().is_valid else None


def _given(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


@contextmanager
def _harmless() -> Iterator[None]:
    """Log the exceptions of span exporters and processors, so that they fail neither a call nor a turn."""
    try:
        yield
    except Exception:
        logger.exception("A span could not be written")
