"""What the tests of traces share: every span that is begun and ended while a test runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

from tests.support import eventually


class Spans(SpanProcessor):
    """The spans of a test; those of libraries are among them. Nothing is recorded once it `is_over`."""

    def __init__(self) -> None:
        self.is_over = False
        self._open: list[Span] = []
        self._exporter = InMemorySpanExporter()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if not self.is_over:
            self._open.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        begun = [mine for mine in self._open if mine.context == span.context]
        if begun:
            self._open.remove(begun[0])
            self._exporter.export([span])

    @property
    def ended(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    async def all_ended(self) -> tuple[ReadableSpan, ...]:
        """Wait until none is open, then return them in the order of their beginnings."""
        await eventually(lambda: self.ended and not self._open)
        return tuple(sorted(self.ended, key=lambda span: span.start_time or 0))

    def named(self, name: str) -> ReadableSpan:
        """The one span of this name that has ended."""
        [found] = self.of(name)
        return found

    def of(self, name: str) -> list[ReadableSpan]:
        """The spans of this name that have ended."""
        return [span for span in self.ended if span.name == name]


class _WhileAsked(Sampler):
    """Samples only while a test records spans: the provider stays for the tests behind it."""

    asked = 0

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        links: Any = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        if not self.asked:
            return SamplingResult(Decision.DROP)
        return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)

    def get_description(self) -> str:
        return type(self).__name__


_sampler = _WhileAsked()


@cache
def provider() -> TracerProvider:
    """The provider of this process: OpenTelemetry takes one, once."""
    provider = TracerProvider(sampler=_sampler, shutdown_on_exit=False)
    trace.set_tracer_provider(provider)
    return provider


@contextmanager
def recorded_spans() -> Iterator[Spans]:
    """Record what is traced meanwhile."""
    spans = Spans()
    provider().add_span_processor(spans)
    _sampler.asked += 1
    try:
        yield spans
    finally:
        _sampler.asked -= 1
        spans.is_over = True


def tree(spans: tuple[ReadableSpan, ...]) -> list[tuple[str, str]]:
    """Return each span's name and that of the span that it is below."""
    names = {span.context.span_id: span.name for span in spans}
    return [
        (span.name, names.get(span.parent.span_id, "") if span.parent else "") for span in spans
    ]


def events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and attributes of a span's events."""
    return [(event.name, dict(event.attributes or {})) for event in span.events]


def texts(spans: tuple[ReadableSpan, ...]) -> str:
    """Return all that spans say, in one text."""
    return "\n".join(span.to_json() for span in spans)
