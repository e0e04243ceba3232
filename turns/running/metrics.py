"""Metrics of this process for Prometheus: what it runs, and what it has counted since its start (B7).

Imported only where `prometheus_client` is installed (the extra `metrics`). Events and signals are counted as they come,
so a scrape reads no history. What the database knows of all processes is in `site_metrics`.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from functools import lru_cache
from itertools import islice, product
from typing import Any
from uuid import UUID
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from governance import CallStatus, CancelReason, CancelSource, Disposition
from governance import registry as tools
from governance.runtime import limits_version, load, timeouts
from turns.core.repairs import CRASH
from turns.core.turns import TurnStatus
from turns.events import sinks
from turns.processes.process_registry import code_version
from turns.running import runtime
from turns.signals import cancel_settled

MAX_TOOL_NAMES = 100
OTHER = "other"
UNKNOWN = "unknown"
TOOL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CANCEL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20)
ERROR_CODES = ("internal_error", "not_stored", "step_limit", "token_limit")  # chat models have more
_ENDED = tuple(status for status in CallStatus if status.is_terminal)
_DIRECTIONS = {"input_tokens": "input", "output_tokens": "output"}  # by their names in `usage`


class Registry(CollectorRegistry):
    """A registry without `_created` series, which double the counters.

    `prometheus_client.disable_created_metrics()` would take them from the host's metrics too. `prepare` is called before
    each scrape.
    """

    prepare: Callable[[], None] = staticmethod(lambda: None)

    def collect(self) -> Iterable[Metric]:
        self.prepare()
        for metric in super().collect():
            metric.samples = [
                sample for sample in metric.samples if not sample.name.endswith("_created")
            ]
            yield metric


registry = Registry()
_turns = Counter(
    "turnkeeper_turns", "Turns that ended in this process", ["status"], registry=registry
)
_calls = Counter(
    "turnkeeper_tool_calls",
    "Tool calls that ended in this process",
    ["tool_name", "status"],
    registry=registry,
)
_tool_seconds = Histogram(
    "turnkeeper_tool_duration_seconds",
    "How long tool calls ran; those that something else ended would have run longer",
    ["tool_name", "status"],
    buckets=TOOL_BUCKETS,
    registry=registry,
)
_cancel_seconds = Histogram(
    "turnkeeper_cancel_duration_seconds",
    "From a request to cancel at once to its end, by the means of the request",
    ["source", "what"],
    buckets=CANCEL_BUCKETS,
    registry=registry,
)
_indeterminate = Counter(
    "turnkeeper_tool_calls_indeterminate",
    "Tool calls that ended while their work may still have been running",
    ["tool_name"],
    registry=registry,
)
_repairs = Counter(
    "turnkeeper_history_repairs",
    "Repairs of histories that this process made",
    ["cause"],
    registry=registry,
)
_tokens = Counter(
    "turnkeeper_model_tokens",
    "Tokens of chat models in turns that ended in this process",
    ["direction"],
    registry=registry,
)
_errors = Counter(
    "turnkeeper_turn_errors",
    "Turns that ended in this process with an error, by its code",
    ["code"],
    registry=registry,
)


class ToolNames:
    """Keeps the number of series bounded: tools of servers elsewhere may come and go, and a model may invent names."""

    def __init__(self, tools: Container[str] = tools) -> None:
        self._tools = tools
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """Return the name, `unknown` if there is no such tool, or `other` if there are too many names already."""
        if name in self._known:
            return name
        if name not in self._tools:
            return UNKNOWN
        if len(self._known) >= MAX_TOOL_NAMES:
            return OTHER
        self._known.add(name)
        return name


class MetricsSink:
    """Counts the events that this process has stored."""

    def __init__(self) -> None:
        self._names = ToolNames()
        self._counters = {
            "turn_end": self._count_turn,
            "tool_result": self._count_call,
            "history_repaired": self._count_repairs,
        }

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        count = self._counters.get(event["type"])
        if count is not None:
            count(event)

    def initialise(self) -> None:
        """Let each series of a tool begin at 0, so that `increase()` sees the first timeout after a start."""
        for tool in tuple(tools):
            name = self._names.label(tool.name)
            _indeterminate.labels(name)
            for status in _ENDED:
                _calls.labels(name, status)

    def _count_turn(self, event: dict[str, Any]) -> None:
        _series(_turns, event["status"]).inc()
        for name, direction in _DIRECTIONS.items():
            _series(_tokens, direction).inc(event["usage"].get(name, 0))
        if event["error_code"]:
            _errors.labels(event["error_code"]).inc()

    def _count_call(self, event: dict[str, Any]) -> None:
        name = self._names.label(event["tool_name"])
        _series(_calls, name, event["status"]).inc()
        if event["disposition"] == Disposition.INDETERMINATE:
            _indeterminate.labels(name).inc()
        if _is_measured(event):
            _series(_tool_seconds, name, event["status"]).observe(event["duration_ms"] / 1000)

    def _count_repairs(self, event: dict[str, Any]) -> None:
        for repair in event["repairs"]:
            _repairs.labels(repair["cause"]).inc()

    def push(self, conversation_id: UUID, delta: dict[str, Any]) -> None:
        """Streamed text is not counted."""


@lru_cache(maxsize=1024)
def _series(metric: Any, *labels: str) -> Any:
    """Return a series of a metric. Every event asks for some, and to find one takes longer than to count."""
    return metric.labels(*labels)


def _is_measured(event: dict[str, Any]) -> bool:
    """Whether the call ran, and it is known for how long: the event says 0 where it is not."""
    return bool(event["disposition"] == Disposition.SETTLED or event["duration_ms"] > 0)


class ProcessLoad(Collector):
    """What this process does now; may be asked in any thread."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the numbers of this moment."""
        yield GaugeMetricFamily(
            "turnkeeper_turns_live", "Turns that this process runs", value=runtime.live_count()
        )
        calls = GaugeMetricFamily(
            "turnkeeper_tool_calls_live", "Tool calls in this process", labels=["state"]
        )
        now = load()
        calls.add_metric(["running"], now.running)
        calls.add_metric(["queued"], now.queued)
        calls.add_metric(["abandoned"], now.abandoned)
        yield calls


class ToolLimits(Collector):
    """The limits in force in this process."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the limit of each tool's next call; without a limit, the tool has no sample."""
        yield GaugeMetricFamily(
            "turnkeeper_limits_version",
            "Version of the administrators' limits in force in this process",
            value=limits_version(),
        )
        limits = GaugeMetricFamily(
            "turnkeeper_tool_limit_seconds", "Limit of the tool's next call", labels=["tool_name"]
        )
        for name, timeout in islice(timeouts().items(), MAX_TOOL_NAMES):
            if timeout:
                limits.add_metric([name], timeout)
        yield limits


def begin() -> None:
    sink = MetricsSink()
    sinks.register(sink)
    registry.prepare = sink.initialise
    registry.register(ToolLimits())
    registry.register(ProcessLoad())
    for default in (ProcessCollector, PlatformCollector, GCCollector):
        default(registry=registry)
    Info("turnkeeper_build", "What runs here", registry=registry).info(
        {"version": code_version() or "unknown"}
    )
    _begin_at_zero()
    cancel_settled.connect(_on_cancel_settled, dispatch_uid="turns.metrics")


def _begin_at_zero() -> None:
    """Make the series whose labels are known, so that `increase()` sees the first of each after a start."""
    for status in TurnStatus:
        if status.is_terminal:
            _turns.labels(status)
    for source, what in product(CancelSource, ("turn", "call")):
        _cancel_seconds.labels(source, what)
    for cause in (CRASH.name, *CancelReason):
        _repairs.labels(cause)
    for direction in _DIRECTIONS.values():
        _tokens.labels(direction)
    for code in ERROR_CODES:
        _errors.labels(code)


def serve(port: int, *, host: str) -> WSGIServer:
    """Answer scrapes in a thread of its own: for a process that serves no pages. Raise `OSError` if it cannot listen."""
    server, _thread = start_http_server(port, addr=host, registry=registry)
    return server


def _on_cancel_settled(
    sender: object, *, source: str, what: str, seconds: float, mode: str, **_: Any
) -> None:
    if mode == "now":  # the others wait on purpose
        _cancel_seconds.labels(source, what).observe(seconds)
