"""Numbers for Prometheus: what this process has seen, and what the database knows of now (B7).

Imported only where `prometheus_client` is installed (the extra `metrics`). Events and signals are counted as they come,
so a scrape reads no history: it asks the database for what is active, which an index answers.
"""

from collections.abc import Container, Iterator
from typing import Any
from uuid import UUID
from wsgiref.simple_server import WSGIServer

from django.db.models import Count
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from governance import Disposition
from governance import registry as tools
from governance.db import run_in_db_thread
from governance.db_clock import database_now
from governance.runtime import load
from turns.core.turns import ACTIVE_STATUSES
from turns.events import sinks
from turns.models import Conversation, Process, Turn
from turns.running import runtime
from turns.signals import cancel_settled

MAX_TOOL_NAMES = 100
OTHER = "other"
UNKNOWN = "unknown"
TOOL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CANCEL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20)

registry = CollectorRegistry()

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
    "From a request to cancel to its end, by the means of the request",
    ["source", "what"],
    buckets=CANCEL_BUCKETS,
    registry=registry,
)
_active = Gauge(
    "turnkeeper_turns_active", "Turns that are not over, everywhere", ["status"], registry=registry
)
_unattended = Gauge(
    "turnkeeper_conversations_unattended",
    "Conversations whose last viewer has left turns behind, everywhere",
    registry=registry,
)
_lease_age = Gauge(
    "turnkeeper_lease_age_seconds",
    "Time since a process renewed its lease, for each that has not ended",
    ["process", "role"],
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

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """Count one event."""
        if event["type"] == "turn_end":
            _turns.labels(event["status"]).inc()
        elif event["type"] == "tool_result":
            name = self._names.label(event["tool_name"])
            _calls.labels(name, event["status"]).inc()
            if _is_measured(event):
                _tool_seconds.labels(name, event["status"]).observe(event["duration_ms"] / 1000)


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


def begin() -> None:
    """Count from now on."""
    sinks.register(MetricsSink())
    registry.register(ProcessLoad())
    cancel_settled.connect(_on_cancel_settled, dispatch_uid="turns.metrics")


def serve(port: int, *, host: str) -> WSGIServer:
    """Answer scrapes in a thread of its own: for a process that serves no pages. Raise `OSError` if it cannot listen."""
    server, _thread = start_http_server(port, addr=host, registry=registry)
    return server


@run_in_db_thread
def look() -> None:
    """Read what the database knows of now: a few short queries, none of which looks at history."""
    active = Turn.objects.filter(status__in=ACTIVE_STATUSES).order_by().values_list("status")
    counts = dict(active.annotate(Count("pk")))
    unattended = Conversation.objects.filter(unattended_since__isnull=False).count()
    alive = list(Process.objects.filter(ended_at=None, seen_at__isnull=False))
    now = database_now()
    for status in ACTIVE_STATUSES:
        _active.labels(status.value).set(counts.get(status.value, 0))
    _unattended.set(unattended)
    _lease_age.clear()
    for process in alive:
        if process.seen_at is not None:
            age = (now - process.seen_at).total_seconds()
            _lease_age.labels(str(process), process.role).set(max(age, 0))


def _on_cancel_settled(sender: object, *, source: str, what: str, seconds: float, **_: Any) -> None:
    _cancel_seconds.labels(source, what).observe(seconds)
