"""What Procrastinate's dispatcher keeps to, on a real database: python -m tests.faults.dispatching."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import django
from asgiref.sync import sync_to_async

from tests.support import PATIENCE, eventually


class Full:
    """A workplace that never has room for another turn."""

    def __init__(self) -> None:
        self.woken: list[UUID] = []

    def wake(self, conversation_id: UUID) -> None:
        self.woken.append(conversation_id)

    async def until_room(self) -> None:
        await asyncio.Event().wait()


async def listen(dispatcher: Any, workplace: Full, *, until: Callable[[], bool]) -> None:
    """Fetch jobs until that is true."""
    listening = asyncio.create_task(dispatcher.listen(workplace, name="test"), name="listening")
    await eventually(sync_to_async(until), timeout=PATIENCE)
    listening.cancel()
    await asyncio.wait({listening})


def main() -> None:
    """Fail if a promise is not kept."""
    django.setup()
    from django.contrib.auth import get_user_model
    from django.db import connection, transaction
    from procrastinate.contrib.django.models import ProcrastinateJob

    from turns.models import Conversation, Turn
    from turns.queueing import queue
    from turns.queueing.dispatchers import get_dispatcher

    def execute(statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    dispatcher, jobs = get_dispatcher(), ProcrastinateJob.objects
    conversation = Conversation.objects.create(owner=get_user_model().objects.get(username="ada"))

    def enqueue() -> Turn:
        return queue.enqueue(conversation.pk, text="x", source="typed", client_id=None).turn

    with transaction.atomic():
        enqueue()
        assert jobs.count() == 1
        transaction.set_rollback(True)
    assert (Turn.objects.count(), jobs.count()) == (0, 0)

    turn = enqueue()
    dispatcher.dispatch(conversation.pk, turn.pk)  # once too often
    [job] = jobs.all()
    assert (job.queue_name, job.task_name, job.lock) == ("turns", "turns.wake", None)
    assert job.args == {"conversation_id": str(conversation.pk)}

    execute("UPDATE procrastinate_jobs SET status = 'doing'")  # as a runner leaves it that dies
    dispatcher.dispatch(conversation.pk, turn.pk)
    assert jobs.count() == 2
    full = Full()
    asyncio.run(listen(dispatcher, full, until=lambda: bool(full.woken) and jobs.count() == 1))
    assert full.woken == [conversation.pk]
    assert jobs.count() == 0

    execute("ALTER TABLE procrastinate_jobs RENAME TO away")
    assert Turn.objects.filter(pk=enqueue().pk, status="queued").exists()


if __name__ == "__main__":
    main()
