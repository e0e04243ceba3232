"""Dispatch by Procrastinate: a job in PostgreSQL, stored in the caller's transaction, wakes a runner.

Jobs start turns and do no more. Who owns a turn, what is cancelled and what was interrupted is in the rows of turns.
Imported only where `TURNS_DISPATCHER` names it.
"""

import asyncio
import logging
from uuid import UUID

from django.db import transaction
from procrastinate import App, PsycopgConnector
from procrastinate.contrib.django import app as django_app
from procrastinate.contrib.django.utils import connector_params
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import DeleteJobCondition, Status

from turns.queueing.dispatchers import TurnHost

logger = logging.getLogger(__name__)

QUEUE = "turns"
TASK = "turns.wake"
FETCH_INTERVAL = 1.0  # seconds, in case a notification was lost
RESTART_PAUSE = 1.0
CLEANING_INTERVAL = 60.0
STALLED_AFTER = 60  # seconds without a sign of the worker that fetched a job
POOL_SIZE = 4
CONNECT_LIMIT = 5.0


class ProcrastinateDispatcher:
    """Stores a job for each queued turn; runners fetch it."""

    is_embedded = False

    def dispatch(self, conversation_id: UUID, turn_id: UUID) -> None:
        """Store the job in the transaction of the caller, which goes on if that fails: the turn is dispatched again.

        At most one job of a turn waits, however often that happens while there is no runner.
        """
        try:
            with transaction.atomic():
                job = django_app.configure_task(TASK, queue=QUEUE, queueing_lock=str(turn_id))
                job.defer(conversation_id=str(conversation_id))
        except AlreadyEnqueued:
            return
        except Exception:
            logger.exception("A turn was not dispatched", extra={"turn_id": str(turn_id)})

    async def listen(self, host: TurnHost, *, name: str) -> None:
        """Fetch jobs until cancelled; the worker is restarted when it has ended, as it does without a database."""
        is_away = False
        while True:
            try:
                await _work(host, name=name)
            except Exception:
                if not is_away:
                    logger.exception("No turns can be fetched; it is tried again every second")
                is_away = True
            else:
                is_away = False
                logger.warning("The worker of Procrastinate has ended and is started again")
            await asyncio.sleep(RESTART_PAUSE)


def _make_connector() -> PsycopgConnector:
    return PsycopgConnector(
        kwargs=connector_params(),
        min_size=1,
        max_size=POOL_SIZE,
        # A pool without a database tries again ever more rarely: it is better replaced.
        timeout=CONNECT_LIMIT,
        reconnect_timeout=CONNECT_LIMIT,
    )


async def _work(host: TurnHost, *, name: str) -> None:
    jobs = App(connector=_make_connector())

    @jobs.task(name=TASK, queue=QUEUE)
    async def wake(conversation_id: str) -> None:
        host.wake(UUID(conversation_id))
        # One job is fetched at a time, so nothing more comes to a runner that is full. Another one takes it.
        await host.until_room()

    async with jobs.open_async():
        cleaning = asyncio.create_task(_clean(jobs), name="cleaning of stalled jobs")
        try:
            await jobs.run_worker_async(
                queues=[QUEUE],
                name=name,
                concurrency=1,
                fetch_job_polling_interval=FETCH_INTERVAL,
                delete_jobs=DeleteJobCondition.ALWAYS.value,
                install_signal_handlers=False,
                shutdown_graceful_timeout=0,
            )
        finally:
            cleaning.cancel()
            await asyncio.wait({cleaning})


async def _clean(jobs: App) -> None:
    """Delete the jobs that a dead runner had fetched: their turns are dispatched again if nobody claimed them."""
    while True:
        try:
            manager = jobs.job_manager
            stalled = await manager.get_stalled_jobs(
                queue=QUEUE, seconds_since_heartbeat=STALLED_AFTER
            )
            for job in stalled:
                if job.id is not None:
                    await manager.finish_job_by_id_async(
                        job.id, status=Status.FAILED, delete_job=True
                    )
        except Exception:
            logger.exception("Stalled jobs could not be deleted")
        await asyncio.sleep(CLEANING_INTERVAL)
