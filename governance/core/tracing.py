"""Spans of OpenTelemetry, where its API is installed; elsewhere all of this does nothing.

Names follow the conventions for generative AI. What those have no name for begins with `turnkeeper.`. A span that ends
takes the open ones below it along: none outlives what it is part of.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeAlias

from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:  # it comes with the extra `otel`
    tracer = None
else:
    tracer = trace.get_tracer("django-turnkeeper")
    _w3c = TraceContextTextMapPropagator()
    _KEY = contexts.create_key("turnkeeper-span")

logger = logging.getLogger(__name__)

Attributes: TypeAlias = Mapping[str, str | bool | int | float | Sequence[str] | None]

OPERATION = "gen_ai.operation.name"
_UNKNOWN = object()
# The API makes the provider of this name itself.
_IS_NAMED = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ


class Span:
    """A span, begun when it is made and ended once. Inside `with`, it is the current one.

    `within` is a `traceparent` from elsewhere; without one, the span is below the current span. What is `shared`, the
    spans below have too. It is shown texts of people, models and tools only if it `shows_content`, as those below are then.
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
        above = self._above = enclosing()
        self.shows_content: bool = above is not None and above.shows_content
        self._shared: Attributes = {**(above._shared if above else {}), **(shared or {})}
        self._below: set[Span] = set()
        self._requests: set[Cancellation] = set()
        self._error_type = ""
        self._attached: Any = None
        self._span: Any = None
        if above is None or not above._is_over:  # else it belongs to what was left behind
            self._span = _start(
                name, {**self._shared, **attributes}, is_client=is_client, within=within
            )
        self._is_over: bool = self._span is None
        if above is not None and not self._is_over:
            above._below.add(self)

    def __enter__(self) -> Self:
        if not self._is_over:
            here = trace.set_span_in_context(self._span)
            self._attached = contexts.attach(contexts.set_value(_KEY, self, here))
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if self._attached is not None and enclosing() is self:  # else the context is gone, too
            contexts.detach(self._attached)
        if isinstance(error, asyncio.CancelledError):
            if not self._requests:
                self.fail("cancelled")
        elif error is not None:
            self.fail(type(error).__name__)
        self.end()

    @property
    def trace_id(self) -> str:
        """The id of the trace that it is part of, in hex; empty if nobody records it."""
        place = self._span.get_span_context() if self._span else None
        return trace.format_trace_id(place.trace_id) if place and place.trace_flags.sampled else ""

    def set(self, attributes: Attributes) -> None:
        """Add attributes; those without a value are left out."""
        if not self._is_over:
            with _harmless():
                self._span.set_attributes(_given(attributes))

    def show(self, content: Callable[[], Mapping[str, Any]]) -> None:
        """Add texts, and values as JSON, where that is allowed; only then are they asked for."""
        if self.shows_content and not self._is_over and self._span.is_recording():
            with _harmless():
                self._span.set_attributes({name: _written(v) for name, v in content().items()})

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """Say that something has happened now. Call it from any thread."""
        if not self._is_over:
            with _harmless():
                self._span.add_event(name, _given(attributes or {}))

    def note_request(self, request: Cancellation) -> None:
        """Say that this was cancelled, or ran out of time; the same request is told once. Call it from any thread."""
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
        """Say that it failed, with the name of a kind of error; the first one counts. Never a text of an exception."""
        if self._error_type or self._is_over:
            return
        self._error_type = error_type
        with _harmless():
            self._span.set_attribute("error.type", error_type)
            self._span.set_status(trace.StatusCode.ERROR)

    def end(self) -> None:
        """End it, and before it the spans below that are still open: what they stand for was left behind."""
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


def is_traced() -> bool:
    """Whether a span made here is recorded or passed on. The site has set up traces, or this is in somebody's trace."""
    return tracer is not None and (bool(contexts.get_current()) or _is_set_up())


def enclosing() -> Span | None:
    """Return the innermost span of ours that the running code is in."""
    found = contexts.get_value(_KEY) if tracer is not None else None
    return found if isinstance(found, Span) else None


def traceparent() -> str:
    """Return the current span, ours or anybody's, as W3C's header names it; empty if there is none."""
    carrier: dict[str, str] = {}
    if tracer is not None:
        _w3c.inject(carrier)
    return carrier.get("traceparent", "")


def _written(value: Any) -> str:
    """A text that an exporter can encode, or JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(value, default=str)


def _start(name: str, attributes: Attributes, *, is_client: bool, within: str) -> Any:
    """Begin a span; None if nobody records it and nothing is to be passed on."""
    span: Any = None
    if tracer is None or (not within and _is_untraced()):
        return None
    with _harmless():
        span = tracer.start_span(
            name,
            _w3c.extract({"traceparent": within}) if within else None,
            trace.SpanKind.CLIENT if is_client else trace.SpanKind.INTERNAL,
            _given(attributes),
        )
    return span if span is not None and span.get_span_context().is_valid else None


def _is_untraced() -> bool:
    """Whether the site has set up no traces, and there is no trace of somebody else to pass on."""
    return not _is_set_up() and trace.get_current_span() is trace.INVALID_SPAN


def _is_set_up() -> bool:
    # The public function reads the environment as long as there is no provider. That takes longer than all else here.
    if getattr(trace, "_TRACER_PROVIDER", _UNKNOWN) is None and not _IS_NAMED:
        return False
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _given(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


@contextmanager
def _harmless() -> Iterator[None]:
    """Let what a site has put behind the API fail for itself: no call and no turn fails with it."""
    try:
        yield
    except Exception:
        logger.exception("A span could not be written")
