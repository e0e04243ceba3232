"""What the dispatcher of runners keeps to, on a real database: python -m tests.faults.dispatching."""

import asyncio
from typing import Any
from uuid import UUID

import django
from asgiref.sync import sync_to_async

from tests.support import PATIENCE, eventually


def main() -> None:
    """Fail if a promise is not kept."""
    django.setup()
    from django.contrib.auth import get_user_model
    from django.db import connection, transaction

    from turns.models import Conversation, Turn
    from turns.processes import process_registry
    from turns.queueing import queue
    from turns.queueing.dispatchers import get_dispatcher

    dispatcher: Any = get_dispatcher()
    conversation = Conversation.objects.create(owner=get_user_model().objects.get(username="ada"))
    other = Conversation.objects.create(owner=conversation.owner)

    def enqueue(chosen: Conversation = conversation) -> Turn:
        return queue.enqueue(chosen.pk, text="x", source="typed", client_id=None).turn

    def roll_back() -> None:
        with transaction.atomic():
            enqueue(other)
            transaction.set_rollback(True)

    def listeners() -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'")
            return [pid for (pid,) in cursor.fetchall()]

    def cut(pid: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])

    async def listen() -> None:
        woken: dict[str, list[UUID]] = {name: [] for name in ("roomy", "full", "draining", "gone")}
        listening = [
            asyncio.create_task(dispatcher.listen(conversations.append, name=name), name=name)
            for name, conversations in woken.items()
        ]

        async def heard(count: int) -> None:
            await eventually(lambda: len(woken["roomy"]) >= count, timeout=PATIENCE)

        await eventually(sync_to_async(lambda: len(listeners()) == 4), timeout=PATIENCE)
        await sync_to_async(roll_back)()
        await sync_to_async(enqueue)()
        await heard(1)
        for pid in await sync_to_async(listeners)():
            await sync_to_async(cut)(pid)
        await eventually(sync_to_async(lambda: len(listeners()) == 4), timeout=PATIENCE)
        await sync_to_async(enqueue)()
        await heard(2)
        assert woken == {"roomy": [conversation.pk] * 2, "full": [], "draining": [], "gone": []}
        for task in listening:
            task.cancel()
        await asyncio.wait(listening)

    enqueue()  # no runner is there
    process_registry.register(role="runner", name="roomy", turn_limit=1000)
    process_registry.register(role="web", name="full")
    process_registry.note_draining(
        process_registry.register(role="runner", name="draining", turn_limit=1000)
    )
    process_registry.retire(process_registry.register(role="runner", name="gone", turn_limit=1000))
    asyncio.run(listen())

    with connection.cursor() as cursor:  # what cannot be told is stored all the same
        cursor.execute("ALTER TABLE turns_process RENAME COLUMN role TO away")
    assert Turn.objects.filter(pk=enqueue().pk, status="queued").exists()


if __name__ == "__main__":
    main()
