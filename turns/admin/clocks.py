"""Clocks: when those of turns and of their calls stood still since people were asked (T5).

They do so while the turn itself asks, and while a sub-agent asks that it waits for, directly or not.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from governance import approval_store
from turns.models import Turn

Key = tuple[UUID, str]  # a turn and its call; no call = the turn itself


@dataclass(frozen=True, slots=True)
class Pauses:
    """When one clock stood still. Spans may overlap; one without an end is not over."""

    spans: Sequence[tuple[datetime, datetime | None]] = ()

    @property
    def is_still(self) -> bool:
        return any(until is None for _since, until in self.spans)

    def lasted(self, at: datetime) -> timedelta:
        """Return how long at least one of the spans lasted, until this moment."""
        total, covered = timedelta(), None
        for begin, end in sorted((since, until or at) for since, until in self.spans):
            begin = begin if covered is None else max(begin, covered)
            total += max(end - begin, timedelta())
            covered = end if covered is None else max(end, covered)
        return total


class ClockPauses:
    """The pauses of some turns and of their calls, read in a query for each level of sub-agents."""

    def __init__(self, turns: Iterable[Any]) -> None:
        stopped = _stopped_by([turn.pk for turn in turns])
        spans: defaultdict[Key, list[tuple[datetime, datetime | None]]] = defaultdict(list)
        waits = approval_store.waits_of_groups(map(str, stopped))
        for asking, keys in stopped.items():
            for key in keys:
                spans[key] += waits.get(str(asking), ())
        self._spans = spans

    def of(self, turn_id: UUID, call_id: str = "") -> Pauses:
        return Pauses(self._spans.get((turn_id, call_id), ()))


def _stopped_by(turns: Sequence[UUID]) -> dict[UUID, set[Key]]:
    """Return for these turns and for all below them that are waited for which clocks stand still while they ask."""
    stopped = {turn: {(turn, "")} for turn in turns}
    level: Sequence[UUID] = turns
    while level:
        waited_for = Turn.objects.filter(parent__in=level, is_detached=False).order_by()
        rows = list(waited_for.values_list("pk", "parent_id", "parent_tool_id"))
        for turn, parent, call_id in rows:
            stopped.setdefault(turn, {(turn, "")}).update(stopped[parent], {(parent, call_id)})
        level = [turn for turn, _parent, _call_id in rows]
    return stopped
