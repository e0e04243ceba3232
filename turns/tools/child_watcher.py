"""Following: sees a sub-agent's turn to its end, wherever it runs, and says what it is doing.

The log is the truth and is read every second. A turn of this process rings, so that it is read at once.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.db import Error as DatabaseError

from governance import selectors as governance_selectors
from governance.db import run_in_db_thread
from turns.conf import app_settings
from turns.core import texts
from turns.core.events import TurnAbort, TurnEnd, TurnQueued, TurnStart
from turns.core.tool_events import ToolApproval, ToolProgress, ToolResult, ToolStart
from turns.core.turns import LIVE_STATUSES
from turns.events import log, sinks
from turns.models import Message, Turn

logger = logging.getLogger(__name__)

_WORDS = {
    TurnQueued.type: texts.QUEUED,
    TurnStart.type: texts.THINKING,
    TurnAbort.type: texts.ENDING,
}


class ChildTurnWatcher:
    """Follows one turn: `say` is told in a few words what it does.

    `pause` is called when it begins to wait for a person, `resume` when that is over.
    """

    def __init__(
        self,
        turn_id: UUID,
        conversation_id: UUID,
        *,
        say: Callable[[str], object],
        pause: Callable[[], object],
        resume: Callable[[], object],
    ) -> None:
        self._turn_id = turn_id
        self._conversation_id = conversation_id
        self._say = say
        self._pause = pause
        self._resume = resume
        self._is_paused = False
        self._seen = 0
        self._written = 0
        self._wakeup = asyncio.Event()
        self._is_over = False

    async def until_ended(self) -> None:
        """Return once the turn is over, or its conversation was deleted."""
        sinks.register(self)
        try:
            while not self._is_over:
                self._wakeup.clear()
                try:
                    await self._look()
                except DatabaseError:  # the sub-agent may well go on: it is looked at again
                    logger.warning("A sub-agent's turn could not be looked at", exc_info=True)
                if not self._is_over:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(app_settings.POLL_INTERVAL):
                            await self._wakeup.wait()
        finally:
            sinks.unregister(self)
            self._set_paused(is_asked=False)

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """As a sink: a stored event is read from the log."""
        if conversation_id == self._conversation_id:
            self._wakeup.set()

    def push(self, conversation_id: UUID, delta: dict[str, Any]) -> None:
        """As a sink: a piece of text is a sign of life."""
        if conversation_id == self._conversation_id:
            self._say(texts.WRITING)

    async def _look(self) -> None:
        events, written, is_asked, exists = await _read(
            self._turn_id, self._conversation_id, self._seen
        )
        for event in events:
            self._seen = event["seq"]
            if text := _progress_text(event):
                self._say(text)
            self._is_over = self._is_over or event["type"] == TurnEnd.type
        if written > self._written:
            self._say(texts.WRITING)
        self._written = written
        self._is_over = self._is_over or not exists
        self._set_paused(is_asked=is_asked and not self._is_over)

    def _set_paused(self, *, is_asked: bool) -> None:
        if is_asked is not self._is_paused:
            self._is_paused = is_asked
            (self._pause if is_asked else self._resume)()


def _progress_text(event: dict[str, Any]) -> str:
    """What a turn does, as an event tells it; nothing where that says nothing new."""
    tool = event.get("tool_name", "")
    match event["type"]:
        case ToolStart.type:
            return texts.RUNNING % {"tool": tool}
        case ToolProgress.type:
            said = event.get("message")
            return f"{tool}: {said}" if said else texts.RUNNING % {"tool": tool}
        case ToolApproval.type:
            return texts.ASKING % {"tool": tool}
        case ToolResult.type:
            return f"{tool} {str(event.get('status', '')).replace('_', ' ')}"
        case known:
            return _WORDS.get(known, "")


@run_in_db_thread
def _read(
    turn_id: UUID, conversation_id: UUID, after: int
) -> tuple[list[log.WireEvent], int, bool, bool]:
    """A turn's news: the length of its unfinished answer, whether a person is asked, whether it exists."""
    events = log.read(conversation_id, after=after)
    streaming = Message.objects.filter(turn=turn_id, is_streaming=True).first()
    written = sum(len(block.get("text", "")) for block in streaming.content) if streaming else 0
    exists = bool(events) or Turn.objects.filter(pk=turn_id).exists()
    return events, written, _asks_a_person(turn_id), exists


def _asks_a_person(turn_id: UUID) -> bool:
    """Whether a call of the turn, or of a sub-agent that it waits for, needs somebody's decision."""
    turns = [turn_id]
    while turns:
        if governance_selectors.awaits_approval(str(pk) for pk in turns):
            return True
        waited_for = Turn.objects.filter(
            parent__in=turns, is_detached=False, status__in=LIVE_STATUSES
        )
        turns = list(waited_for.values_list("pk", flat=True))
    return False
