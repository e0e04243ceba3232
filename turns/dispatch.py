"""The supervisor's store on Django's ORM, and the embedded way to start a turn: a task in this process."""

from collections.abc import Collection, Sequence
from uuid import UUID

from governance.doors import database_door
from turns import endings, recovery, sinks, store
from turns.core.ports import CancelOrder, ClaimedTurn, TurnEnding
from turns.models import Process

_claim_next = database_door(store.claim_next)
_open_orders = database_door(store.open_orders)
_end_turn = database_door(endings.end_turn)
_end_lost = database_door(recovery.end_lost)
_waiting_conversations = database_door(store.waiting_conversations)


class DatabaseStore:
    """Keeps turns in the database; publishes what it has persisted."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def claim_next(self, conversation_id: UUID) -> ClaimedTurn | None:
        """Make the next queued turn ours."""
        claimed = await _claim_next(conversation_id, process=self._process)
        if claimed is None:
            return None
        turn, events = claimed
        await sinks.publish(conversation_id, events)
        return turn

    async def open_orders(self, turn_ids: Sequence[UUID]) -> list[CancelOrder]:
        """Return the unsettled cancel requests of these turns."""
        return await _open_orders(turn_ids)

    async def end_turn(
        self, turn: ClaimedTurn, ending: TurnEnding, *, steps: int, usage: dict[str, int]
    ) -> bool:
        """End the turn if it is still ours."""
        events = await _end_turn(turn.id, ending, epoch=turn.epoch, steps=steps, usage=usage)
        if events is None:
            return False
        await sinks.publish(turn.conversation_id, events)
        return True

    async def end_lost(self, live: Collection[UUID]) -> None:
        """End the turns that name this process although it does not run them."""
        for conversation_id, events in await _end_lost(self._process, live):
            await sinks.publish(conversation_id, events)

    async def waiting_conversations(self) -> list[UUID]:
        """Return the conversations with a queued turn and no live one."""
        return await _waiting_conversations()
