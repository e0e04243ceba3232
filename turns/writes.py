"""Writes of a turn's owner: each is one fenced transaction, which can be repeated if its answer was lost (sync ORM)."""

from collections.abc import Callable
from typing import Any

from django.db import transaction

from governance import Cancellation
from turns import log, wishes
from turns.core.events import TurnEvent
from turns.core.exceptions import Fenced
from turns.core.ports import ClaimedTurn
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.models import Turn

Change = Callable[..., list[TurnEvent]]


class Write:
    """One change of a turn, and the `events` that it has come to.

    If a commit was lost on its way back, the first event tells: it is in the log, under its number and its moment. A
    change without events has to be one that is the same done twice.
    """

    def __init__(self, turn: ClaimedTurn, change: Change, *arguments: Any) -> None:
        self.events: list[log.WireEvent] = []
        self._turn = turn
        self._change = change
        self._arguments = arguments

    def __call__(self) -> Cancellation | None:
        """Carry it out and append its events, if the turn is still ours; return why it is to be cancelled, if it is.

        Raises:
            Fenced: the turn has another owner or has ended.
        """
        turn = self._turn
        with transaction.atomic():
            conversation = log.locked_of(turn.id)
            row = Turn.objects.filter(
                pk=turn.id, epoch=turn.epoch, status__in=LIVE_STATUSES
            ).first()
            if conversation is None or row is None:
                raise Fenced(f"turn {turn.id} is not ours any more")
            row.conversation = conversation
            if not (self.events and log.has(conversation.pk, self.events[0])):
                events = self._change(row, *self._arguments)
                self.events = log.append(conversation, turn.id, *events)
            return wishes.stored(row) if row.status == TurnStatus.CANCELLING else None
