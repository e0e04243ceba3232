"""What the database knows now of the whole site, in a few short queries along indexes (sync ORM)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min

from governance import selectors as calls
from governance.db_clock import database_now
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.models import Conversation, Process, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteState:
    """How many turns are active, by status; what waits for people and since when; the processes that have not ended."""

    at: datetime
    active: Mapping[str, int]
    first_queued_at: datetime | None
    waiting_approvals: int
    first_approval_at: datetime | None
    unattended: int
    processes: Sequence[Process]

    def age(self, since: datetime | None) -> float:
        """Return how many seconds have passed; 0 where nothing has begun."""
        return 0.0 if since is None else max((self.at - since).total_seconds(), 0.0)


def read() -> SiteState:
    turns = Turn.objects.filter(status__in=ACTIVE_STATUSES).order_by().values_list("status")
    found = {
        status: (count, at) for status, count, at in turns.annotate(Count("pk"), Min("queued_at"))
    }
    approvals, first_approval = calls.waiting_approvals()
    return SiteState(
        active={status: count for status, (count, _) in found.items()},
        first_queued_at=found.get(TurnStatus.QUEUED, (0, None))[1],
        waiting_approvals=approvals,
        first_approval_at=first_approval,
        unattended=Conversation.objects.filter(unattended_since__isnull=False).count(),
        processes=list(Process.objects.filter(ended_at=None, seen_at__isnull=False)),
        at=database_now(),
    )
