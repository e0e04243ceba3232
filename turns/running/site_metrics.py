"""Metrics of the whole site for Prometheus: what the database knows now of all processes (B7).

Every web process would answer the same, so one of them is asked: `GET /metrics?scope=site`. A scrape asks for what is
active, which indexes answer, and reads no history.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from governance.db import run_in_db_thread
from turns.core.turns import ACTIVE_STATUSES
from turns.storage import site_state


@dataclass(frozen=True, kw_only=True)
class SiteMetrics(Collector):
    """What one reading of the database has found; ages are in seconds."""

    active: dict[str, int]
    unattended: int
    waiting_approvals: int
    oldest_approval_age: float
    oldest_queued_age: float
    lease_ages: dict[tuple[str, str], float] = field(default_factory=dict)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield self._turns_by_status()
        yield _gauge(
            "conversations_unattended",
            "Conversations whose last viewer has left turns behind, everywhere",
            value=self.unattended,
        )
        yield _gauge(
            "approvals_waiting",
            "Calls that wait for a person's decision",
            value=self.waiting_approvals,
        )
        yield _gauge(
            "oldest_approval_age_seconds",
            "How long the oldest of them waits",
            value=self.oldest_approval_age,
        )
        yield _gauge(
            "oldest_queued_turn_age_seconds",
            "How long the oldest queued turn waits",
            value=self.oldest_queued_age,
        )
        yield self._ages_of_leases()

    def _turns_by_status(self) -> GaugeMetricFamily:
        active = _gauge("turns_active", "Turns that are not over, everywhere", "status")
        for status in ACTIVE_STATUSES:
            active.add_metric([status.value], self.active.get(status, 0))
        return active

    def _ages_of_leases(self) -> GaugeMetricFamily:
        ages = _gauge(
            "lease_age_seconds",
            "Time since a process renewed its lease, for each that has not ended",
            "process",
            "role",
        )
        for labels, age in self.lease_ages.items():
            ages.add_metric(labels, age)
        return ages


@run_in_db_thread
def read() -> SiteMetrics:
    """Read what the database knows now, in a few short queries."""
    state = site_state.read()
    return SiteMetrics(
        active=dict(state.active),
        unattended=state.unattended,
        waiting_approvals=state.waiting_approvals,
        oldest_approval_age=state.age(state.first_approval_at),
        oldest_queued_age=state.age(state.first_queued_at),
        lease_ages={
            (str(process), process.role): state.age(process.seen_at) for process in state.processes
        },
    )


def _gauge(name: str, says: str, *labels: str, value: float | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"turnkeeper_{name}", says, value=value, labels=labels or None)
