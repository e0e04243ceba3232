"""Stores the streamed text of all turns of a process: all that waits is written in one crossing."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.db.models import Exists, IntegerField, UUIDField

from governance.db import run_in_db_thread
from governance.prepared_statements import Changes, Update, fields_of
from governance.sanitize import sanitize_text
from governance.transactions import atomic
from turns.core.ports import ClaimedTurn
from turns.core.turns import TurnStatus
from turns.models import Message, Turn

MOST_AT_ONCE = 50  # what comes on top waits, so that other writes need not


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedText:
    """What the message of a step says so far."""

    turn: ClaimedTurn
    step: int
    text: str


Waiting: TypeAlias = tuple[StreamedText, "asyncio.Future[bool]"]


class TextWrites:
    """Writes for one event loop, as soon as the last write is done."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def save(self, text: StreamedText) -> bool:
        """Store it; return False if the turn or the message is not what it was. Raise what the database raises."""
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((text, stored))
        if self._writing is None or self._writing.done():
            self._writing = loop.create_task(
                self._write(), name="writes of streamed text", context=Context()
            )
        return await stored

    async def _write(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            if not await _try(taken):
                for one in taken:  # what is wrong with one shall not fail the others
                    await _try([one])


async def _try(waiting: Sequence[Waiting]) -> bool:
    """Store texts and tell who waits for them; one that fails alone is told why. Return whether all is told."""
    try:
        results = await _store([text for text, _ in waiting])
    except Exception as error:  # noqa: BLE001 - whoever waits raises it
        if len(waiting) == 1 and not waiting[0][1].done():
            waiting[0][1].set_exception(error)
        return len(waiting) == 1
    for (_, stored), result in zip(waiting, results, strict=True):
        if not stored.done():
            stored.set_result(result)
    return True


def store(texts: Sequence[StreamedText]) -> list[bool]:
    """Store texts together, without a lock; return which of them have found their message.

    The statement is its own fence. Nobody else writes the text of a message that is not complete. The order is that of
    everybody who writes several conversations at once.
    """
    ordered = sorted(range(len(texts)), key=lambda place: texts[place].turn.conversation_id)
    results = [False] * len(texts)
    with atomic() if len(texts) > 1 else nullcontext():
        for place in ordered:
            text = texts[place]
            results[place] = bool(
                STREAMED.run(
                    turn=text.turn.id,
                    epoch=text.turn.epoch,
                    step=text.step,
                    content=[{"type": "text", "text": sanitize_text(text.text)}],
                )
            )
    return results


def _streamed(turn: Any, epoch: Any, step: Any, content: Any) -> Changes:
    ours = Turn.objects.filter(pk=turn, epoch=epoch, status=TurnStatus.RUNNING)
    streaming = Message.objects.filter(Exists(ours), turn=turn, step=step, is_streaming=True)
    return streaming, {"content": content}


STREAMED = Update(
    _streamed,
    turn=UUIDField(),
    epoch=IntegerField(),
    step=IntegerField(),
    **fields_of(Message, "content"),
)

_store = run_in_db_thread(store)
