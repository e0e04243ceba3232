"""The times at which the clocks of turns and calls were paused for people's decisions.

The clock of a turn pauses while the turn waits for a person's decision, or for a sub-agent (at any depth) that waits for
one. The clock of a running call also pauses while the call waits for the answers to a form.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from governance import approval_store
from turns.models import Turn

Key = tuple[UUID, str]  # a turn and its call; an empty call id = the turn itself


@dataclass(frozen=True, slots=True)
class Pauses:
    """The pauses of one clock. Spans may overlap; a span without an end is still open."""

    spans: Sequence[tuple[datetime, datetime | None]] = ()

    @property
    def is_still(self) -> bool:
        return any(until is None for _since, until in self.spans)

    def lasted(self, at: datetime) -> timedelta:
        """Return the total time spent in pauses until `at`; times that overlap are added only once."""
        total, covered = timedelta(), None
        for begin, end in sorted((since, until or at) for since, until in self.spans):
            begin = begin if covered is None else max(begin, covered)
            total += max(end - begin, timedelta())
            covered = end if covered is None else max(end, covered)
        return total


class ClockPauses:
    """The pauses of the given turns and their calls, read with one query per level of sub-agents."""

    def __init__(self, turns: Iterable[Any]) -> None:
        stopped = _stopped_by([turn.pk for turn in turns])
        spans: defaultdict[Key, list[tuple[datetime, datetime | None]]] = defaultdict(list)
        waits = approval_store.waits_of_groups(map(str, stopped))
        for asking, keys in stopped.items():
            for wait in waits.get(str(asking), ()):
                own = {(asking, wait.running_call)} if wait.running_call else set()
                for key in keys | own:
                    spans[key].append((wait.since, wait.until))
        self._spans = spans

    def of(self, turn_id: UUID, call_id: str = "") -> Pauses:
        return Pauses(self._spans.get((turn_id, call_id), ()))


def _stopped_by(turns: Sequence[UUID]) -> dict[UUID, set[Key]]:
    """Return the clocks that pause while a turn waits for a decision, by turn.

    The keys are these turns, and the descendants for which they wait.
    """
    stopped = {turn: {(turn, "")} for turn in turns}
    level: Sequence[UUID] = turns
    while level:
        waited_for = Turn.objects.filter(parent__in=level, is_detached=False).order_by()
        rows = list(waited_for.values_list("pk", "parent_id", "parent_tool_id"))
        for turn, parent, call_id in rows:
            stopped.setdefault(turn, {(turn, "")}).update(stopped[parent], {(parent, call_id)})
        level = [turn for turn, _parent, _call_id in rows]
    return stopped
