"""Sums of the tokens and requests that turns used, by conversation, user, agent or day.

The functions here use the synchronous ORM.
"""

from collections.abc import Mapping
from typing import Any, Literal

from django.db.models import BigIntegerField, F, QuerySet, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, TruncDate

from turns.core.chat_model import COUNTED
from turns.models import Turn

_PER: Mapping[str, Any] = {
    "conversation": F("conversation_id"),
    "user": F("conversation__owner_id"),
    "agent": F("agent"),
    "day": TruncDate("queued_at"),
}
_SUMS = {
    f"sum_of_{name}": Coalesce(Sum(Cast(KT(f"usage__{name}"), BigIntegerField())), 0)
    for name in COUNTED
}


def usage_of(turns: QuerySet[Turn]) -> dict[str, int]:
    """Return the total usage of these turns by kind; kinds with a total of zero are omitted."""
    return _counts(turns.order_by().aggregate(**_SUMS))


def usage_per(
    key: Literal["conversation", "user", "agent", "day"], turns: QuerySet[Turn] | None = None
) -> dict[Any, dict[str, int]]:
    """Return the usage of turns (by default all) per conversation, user, agent or day."""
    included = Turn.objects.all() if turns is None else turns
    rows = included.order_by().annotate(per=_PER[key]).values("per").annotate(**_SUMS)
    return {row["per"]: _counts(row) for row in rows.order_by("per")}


def _counts(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: count for name in COUNTED if (count := row[f"sum_of_{name}"])}
