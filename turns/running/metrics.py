"""Prometheus metrics of this process (its current load, and counters since its start) and of the whole site (B7).

This module is imported only if `prometheus_client` is installed (the `metrics` extra). Events and signals are counted
as they occur, so a scrape reads no history. The metrics of the whole site are at the end of this module. Every web
process would return the same values, so only one of them is scraped (`GET /metrics?scope=site`). The values are read
through indexes, from the rows of active work.
"""

import collections
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
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from governance import CallStatus, CancelReason, CancelSource, Disposition
from governance import registry as tools
from governance.db import run_in_db_thread, waited
from governance.runtime import limits_version, load, timeouts
from governance.statistics import CUT_BY, limit_origin, limit_that_cut
from governance.unanswered import cut_count
from turns import __version__
from turns.chat_models.failures import FELL_BACK
from turns.core.prompt_changes import PromptChange
from turns.core.repairs import CRASH, LEASE_LOSSES
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import sinks
from turns.processes.leases import Lease
from turns.running import runtime
from turns.signals import cancel_settled
from turns.storage import site_state
from turns.storage.site_state import SiteState

MAX_TOOL_NAMES = 100
OTHER = "other"
UNKNOWN = "unknown"
TOOL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CANCEL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20)
ERROR_CODES = (  # chat models can return others
    *("internal_error", "not_stored", "step_limit", "token_limit"),
    *LEASE_LOSSES,
)
_ENDED = tuple(status for status in CallStatus if status.is_terminal)
_DIRECTIONS = {"input_tokens": "input", "output_tokens": "output"}  # by their keys in `usage`


class Registry(CollectorRegistry):
    """A registry without `_created` series, which would double the number of series.

    `prometheus_client.disable_created_metrics()` would also remove them from the host's metrics. `prepare` is called
    before each scrape.
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
_timeouts = Counter(
    "turnkeeper_tool_timeouts",
    "Tool calls of this process that a limit has ended, whatever their status, by the limit",
    ["tool_name", "limit"],
    registry=registry,
)
_tool_seconds = Histogram(
    "turnkeeper_tool_duration_seconds",
    "How long tool calls ran; those that something else ended would have run longer",
    ["tool_name", "status", "limit_from"],
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
_prompt_changes = Counter(
    "turnkeeper_prompt_changes",
    "Turns in which a model read its conversation anew, by what had changed",
    ["reason"],
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


_fallbacks = Counter(
    "turnkeeper_model_fallbacks",
    "Times that a fallback model took over in this process, since the one before refused service",
    registry=registry,
)


class ToolNames:
    """The labels for tool names. Their number is limited, because remote tools come and go and models invent names."""

    def __init__(self, tools: Container[str] = tools) -> None:
        self._tools = tools
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """Return the name, `unknown` if there is no such tool, or `other` if there are too many names."""
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
            "error": self._count_fallback,
            "prompt_changed": self._count_prompt_change,
        }

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        count = self._counters.get(event["type"])
        if count is not None:
            count(event)

    def initialise(self) -> None:
        """Create the series of each tool with the value 0, so that `increase()` sees the first timeout after
        a start.
        """
        for tool in tuple(tools):
            name = self._names.label(tool.name)
            _indeterminate.labels(name)
            for status in _ENDED:
                _calls.labels(name, status)
            for limit in CUT_BY.values():
                _timeouts.labels(name, limit)

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
        if not _is_measured(event):
            return
        why = [event.get(key) or "" for key in ("error_type", "timeout_source", "limit_reached")]
        origin = limit_origin(event.get("timeout_source") or "")
        series = _series(_tool_seconds, name, event["status"], origin)
        series.observe(event["duration_ms"] / 1000)
        if limit := limit_that_cut(event["status"], *why):
            _series(_timeouts, name, limit).inc()

    def _count_repairs(self, event: dict[str, Any]) -> None:
        for repair in event["repairs"]:
            _repairs.labels(repair["cause"]).inc()

    def _count_fallback(self, event: dict[str, Any]) -> None:
        if event["code"] == FELL_BACK:
            _fallbacks.inc()

    def _count_prompt_change(self, event: dict[str, Any]) -> None:
        _prompt_changes.labels(event["reason"]).inc()

    def push(self, conversation_id: UUID, delta: dict[str, Any]) -> None: ...


@lru_cache(maxsize=1024)
def _series(metric: Any, *labels: str) -> Any:
    """Return a series from a cache, because finding one takes longer than counting."""
    return metric.labels(*labels)


def _is_measured(event: dict[str, Any]) -> bool:
    """Return whether the call ran for a known duration; an unknown duration is 0 in the event."""
    return bool(event["disposition"] == Disposition.SETTLED or event["duration_ms"] > 0)


class ProcessState(Collector):
    """The load of this process, its limits, and its counters besides those of turns and calls; safe in any thread."""

    def collect(self) -> Iterator[Metric]:
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
        waits = CounterMetricFamily(
            "turnkeeper_database_wait_seconds",
            "Seconds that statements have waited in this process, all together, for a thread or a connection",
            labels=["what"],
        )
        for what, seconds in waited().items():
            waits.add_metric([what], seconds)
        yield waits
        yield CounterMetricFamily(
            "turnkeeper_database_connections_cut",
            "Connections that this process has cut since the database did not answer",
            value=cut_count(),
        )
        yield CounterMetricFamily(
            "turnkeeper_leases_lost", "Leases that this process has lost", value=Lease.lost_here
        )
        yield GaugeMetricFamily(
            "turnkeeper_limits_version",
            "Version of the administrators' limits in force in this process",
            value=limits_version(),
        )
        limits = GaugeMetricFamily(
            "turnkeeper_tool_limit_seconds", "Limit of the tool's next call", labels=["tool_name"]
        )
        for name, timeout in islice(timeouts().items(), MAX_TOOL_NAMES):
            if timeout:  # a tool without a limit has no sample
                limits.add_metric([name], timeout)
        yield limits


def begin() -> None:
    sink = MetricsSink()
    sinks.register(sink)
    registry.prepare = sink.initialise
    registry.register(ProcessState())
    for default in (ProcessCollector, PlatformCollector, GCCollector):
        default(registry=registry)
    Info("turnkeeper_build", "What runs here", registry=registry).info({"version": __version__})
    _begin_at_zero()
    cancel_settled.connect(_on_cancel_settled, dispatch_uid="turns.metrics")


def _begin_at_zero() -> None:
    """Create the series with known labels and the value 0, so that `increase()` sees the first event after a start."""
    for status in TurnStatus:
        if status.is_terminal:
            _turns.labels(status)
    for source, what in product(CancelSource, ("turn", "call")):
        _cancel_seconds.labels(source, what)
    for cause in (CRASH.name, *LEASE_LOSSES, *CancelReason):
        _repairs.labels(cause)
    for reason in PromptChange:
        _prompt_changes.labels(reason)
    for direction in _DIRECTIONS.values():
        _tokens.labels(direction)
    for code in ERROR_CODES:
        _errors.labels(code)


def serve(port: int, *, host: str) -> WSGIServer:
    """Serve scrapes in a separate thread, for a process without a web server. Raise `OSError` if it cannot listen."""
    server, _thread = start_http_server(port, addr=host, registry=registry)
    return server


def _on_cancel_settled(
    sender: object, *, source: str, what: str, seconds: float, mode: str, **_: Any
) -> None:
    if mode == "now":  # cancels of other modes wait by design
        _cancel_seconds.labels(source, what).observe(seconds)


class SiteMetrics(Collector):
    """The metrics of the whole site in one scrape."""

    def __init__(self, state: SiteState) -> None:
        self._state = state

    def collect(self) -> Iterator[GaugeMetricFamily]:
        state = self._state
        active = _gauge("turns_active", "Turns that are not over, everywhere", "status")
        for status in ACTIVE_STATUSES:
            active.add_metric([status.value], state.active.get(status, 0))
        yield active
        yield _gauge(
            "conversations_unattended",
            "Conversations whose last viewer has left turns behind, everywhere",
            value=state.unattended,
        )
        yield _gauge(
            "approvals_waiting",
            "Calls that wait for a person",
            value=state.waiting_approvals,
        )
        yield _gauge(
            "oldest_approval_age_seconds",
            "How long the oldest of them waits",
            value=state.age(state.first_approval_at),
        )
        yield _gauge(
            "oldest_queued_turn_age_seconds",
            "How long the oldest queued turn waits",
            value=state.age(state.first_queued_at),
        )
        ages = _gauge(
            "lease_age_seconds",
            "Time since a process renewed its lease, for each that has not ended",
            "process",
            "role",
        )
        for process in state.processes:
            ages.add_metric([str(process), process.role], state.age(process.seen_at))
        yield ages
        # A gauge instead of a counter, because the process that detects a dead one may have just started.
        lost = _gauge(
            "processes_lost",
            "Processes that died or fell silent within the last hour",
            "process",
            "role",
            "ending",
        )
        counts = collections.Counter((str(each), each.role, each.ending) for each in state.lost)
        for labels, count in counts.items():
            lost.add_metric(labels, count)
        yield lost


@run_in_db_thread
def read_site() -> SiteMetrics:
    """Read the values with a few short queries."""
    return SiteMetrics(site_state.read())


def _gauge(name: str, says: str, *labels: str, value: float | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"turnkeeper_{name}", says, value=value, labels=labels or None)
