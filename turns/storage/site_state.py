"""Reads the state of the whole site with a few short queries that use indexes.

The functions here use the synchronous ORM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Min

from governance import selectors as calls
from governance.db_clock import database_now, now_minus
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.models import Conversation, Process, Turn
from turns.models.processes import LOST

RECENTLY = timedelta(hours=1)
MOST_LOST = 100  # maximum of recently lost processes


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteState:
    """The state of the whole site: active turns by status, open questions to people with the time of the oldest, and
    processes.

    `processes` are those that have not ended. `lost` are those that died or went silent within the last hour, the
    latest first.
    """

    at: datetime
    active: Mapping[str, int]
    first_queued_at: datetime | None
    waiting_approvals: int
    first_approval_at: datetime | None
    unattended: int
    processes: Sequence[Process]
    lost: Sequence[Process]

    def age(self, since: datetime | None) -> float:
        """Return how many seconds have passed since this time; 0 for None."""
        return 0.0 if since is None else max((self.at - since).total_seconds(), 0.0)


def read() -> SiteState:
    turns = Turn.objects.filter(status__in=ACTIVE_STATUSES).order_by().values_list("status")
    counts = {
        status: (count, at) for status, count, at in turns.annotate(Count("pk"), Min("queued_at"))
    }
    approvals, first_approval = calls.waiting_approvals()
    losses = Process.objects.filter(ending__in=LOST, ended_at__gte=now_minus(RECENTLY))
    return SiteState(
        active={status: count for status, (count, _) in counts.items()},
        first_queued_at=counts.get(TurnStatus.QUEUED, (0, None))[1],
        waiting_approvals=approvals,
        first_approval_at=first_approval,
        unattended=Conversation.objects.filter(unattended_since__isnull=False).count(),
        processes=list(Process.objects.filter(ended_at=None, seen_at__isnull=False)),
        lost=list(losses.order_by("-ended_at")[:MOST_LOST]),
        at=database_now(),
    )
