"""Owns the live turns of a process: runs them, applies requests, and stores the one ending of each.

A turn runs in a task of ours, outside every connection. Cancelling is bounded twice: the runner and its tools end
within their graces. If they do not, the supervisor ends the turn without them (C1).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from itertools import count
from typing import Any
from uuid import UUID

from governance import (
    Cancellation,
    CancellationToken,
    CancelReason,
    LiveCall,
    ScopeRegistry,
)
from governance.logs import bind
from turns.core import texts
from turns.core.claimer import Phase, TurnClaimer
from turns.core.exceptions import Fenced, NotStored, TurnRefused
from turns.core.periodic import run_periodically
from turns.core.ports import ClaimedTurn, TurnStore
from turns.core.requests import PendingRequest
from turns.core.runner import TurnRunner
from turns.core.running_turn import RunningTurn
from turns.core.slots import TurnSlots
from turns.core.tracing import note_ending
from turns.core.turns import TurnEnding, TurnStatus, ending_of

logger = logging.getLogger(__name__)

MakeRunner = Callable[[RunningTurn], Awaitable[TurnRunner]]

SWEEP_JITTER = 0.2  # so that the processes do not all look at the same moment
END_ATTEMPTS = 4  # of a process that goes down
END_PAUSE = 3.0  # seconds at most between two attempts

_NOT_STORED = TurnEnding(
    status=TurnStatus.INTERRUPTED, error_code="not_stored", error_message=texts.NOT_STORED
)


class TurnSupervisor:
    """Starts, cancels and ends turns on one event loop.

    `cancel_bound` seconds after a cancel a turn is ended, whatever its runner does. Every `poll_interval` seconds the
    stored requests are read, in case a wake-up was lost (C12). `on_poll` is awaited as often. While `max_live` turns
    are busy here no other begins; the store decides which one is next (P4). 0 = none ever. About every `sweep_interval`
    seconds it looks for turns that lost their owner, and for what waits to begin (H4).
    """

    def __init__(
        self,
        *,
        store: TurnStore,
        make_runner: MakeRunner,
        poll_interval: float = 1.0,
        cancel_bound: float = 0.85,
        sweep_interval: float = 2.0,
        on_poll: Callable[[], Awaitable[None]] | None = None,
        max_live: int | None = None,
    ) -> None:
        self._store = store
        self._make_runner = make_runner
        self._poll_interval = poll_interval
        self._cancel_bound = cancel_bound
        self._sweep_interval = sweep_interval
        self._on_poll = on_poll
        self._scopes: ScopeRegistry[CancellationToken] = ScopeRegistry()
        self._live: dict[UUID, RunningTurn] = {}
        self._notified_at = 0  # when it was last heard that something is asked of a turn
        self._claimer = TurnClaimer(
            store,
            run=self._oversee,
            slots=TurnSlots(max_live, live=lambda: len(self._live), busy=self._count_busy),
            scopes=self._scopes,
        )
        self._watching: tuple[asyncio.Task[None], ...] = ()
        self._grace_is_cut = asyncio.Event()
        self._left_behind: set[asyncio.Task[Any]] = set()

    @property
    def live_turns(self) -> Iterable[RunningTurn]:
        return tuple(self._live.values())

    @property
    def is_draining(self) -> bool:
        return self._claimer.phase is Phase.DRAINING

    @property
    def has_room(self) -> bool:
        """Whether another turn may begin here. One that waits for a person or for another turn takes no room."""
        return self._claimer.has_room

    async def until_room(self) -> None:
        await self._claimer.until_room()

    def start(self) -> None:
        """Begin to poll and to sweep."""
        self._claimer.fill()
        if not self._watching:
            # Cancel requests have a task of their own: a slow poll must not delay a cancel (C12).
            poll, sweep = self._poll_interval, self._sweep_interval
            self._watching = (
                run_periodically(
                    self.check_requests, name="turn supervisor requests", interval=poll
                ),
                run_periodically(self._poll, name="turn supervisor poll", interval=poll),
                run_periodically(
                    self._sweep, name="turn supervisor sweep", interval=sweep, jitter=SWEEP_JITTER
                ),
            )

    def wake(self, conversation_id: UUID) -> None:
        """Tell that a turn of a conversation waits; safe to call once too often.

        If there is room, a queued turn begins: the one whose turn it is. Else that happens when there is some.
        """
        self._claimer.request(conversation_id)

    def reserve(self, conversation_id: UUID) -> "asyncio.Future[ClaimedTurn | None] | None":
        """Take a slot for a turn that is claimed where its message is taken. None if it has to wait for its turn."""
        return self._claimer.reserve(conversation_id)

    def find_turn(self, turn_id: UUID) -> RunningTurn | None:
        return self._live.get(turn_id)

    def find_call(self, turn_id: UUID, tool_id: str) -> LiveCall | None:
        """Return a call that waits or runs in this process."""
        live = self._live.get(turn_id)
        return live.find_call(tool_id) if live else None

    async def check_requests(self) -> None:
        """Read the requests that are stored for the live turns, and apply them."""
        self._notified_at = self._scopes.stamp()
        if self._live:
            questions = [question for live in self.live_turns for question in live.open_questions]
            self.apply_requests(await self._store.pending_requests(list(self._live), questions))

    def apply_requests(self, requests: Iterable[PendingRequest]) -> None:
        """Apply requests to the turns that run here; what has to wait, the next poll finds again."""
        self._notified_at = self._scopes.stamp()
        applied = [
            request
            for request in requests
            if (live := self._live.get(request.turn_id)) is not None and live.apply(request)
        ]
        self._store.settle_requests(applied)

    async def fence(self) -> None:
        """Drop every live turn, because this process has lost its lease: end its tools, store nothing, start nothing.

        Returns when they are gone, or were left behind; `resume` lets turns begin again.
        """
        self._claimer.fence()
        lost = Cancellation(reason=CancelReason.ERROR, note="the process lost its lease")
        for live in self.live_turns:
            live.is_fenced = True
        self._scopes.cancel_everything(lost)
        if self._claimer.tasks:
            await asyncio.wait(self._claimer.tasks, timeout=self._cancel_bound + 1.0)

    def resume(self) -> None:
        """Let turns begin again: the process has a new lease."""
        self._claimer.resume()

    def close(self) -> None:
        self._claimer.close()

    def cut_grace(self) -> None:
        """Take what is left of the grace away from a drain."""
        self._grace_is_cut.set()

    async def drain(self, *, grace: float) -> None:
        """Start nothing more, give the live turns `grace` seconds, cancel the rest as `shutdown`, and wait for it."""
        self.close()
        await self._let_end(grace)
        self._scopes.cancel_everything(Cancellation(reason=CancelReason.SHUTDOWN))
        if self._claimer.tasks:
            await asyncio.wait(self._claimer.tasks, timeout=self._cancel_bound + END_ATTEMPTS)
        for task in self._watching:
            task.cancel()
        if self._watching:
            await asyncio.wait(self._watching)
            self._watching = ()

    async def _let_end(self, grace: float) -> None:
        """Wait for the end of what runs, as long as the grace lasts."""
        if not self._claimer.tasks or grace <= 0:
            return
        hurried = asyncio.create_task(self._grace_is_cut.wait(), name="end of the grace")
        ended = asyncio.create_task(_wait_for_all(self._claimer.tasks), name="end of what runs")
        await asyncio.wait({hurried, ended}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (hurried, ended):
            waiting.cancel()

    def _count_busy(self) -> int:
        """How many turns take a place: one that waits for a person or for another turn takes none."""
        return sum(not live.is_waiting for live in self._live.values())

    async def _oversee(self, turn: ClaimedTurn, claimed_at: int) -> None:
        """Run the turn to its end, and let the next one of its conversation begin."""
        live = self._live[turn.id] = RunningTurn(turn, cancel_bound=self._cancel_bound)
        with live.span:
            bind(**_ids_of(turn), trace_id=live.span.trace_id)  # the lines of its tools, too
            others_wait = await self._run_to_end(live, claimed_at)
        self._claimer.request_next(turn.conversation_id, others_wait=others_wait)

    async def _run_to_end(self, live: RunningTurn, claimed_at: int) -> bool:
        """Run the turn in a task of its own, and end it. Return whether another one may begin now."""
        turn = live.turn
        scope = str(turn.conversation_id)
        # Everything may have been cancelled while its claim was under way: then it starts cancelled.
        self._scopes.begin(scope, turn.kind, live.token, queued_at=claimed_at)
        self._claimer.fill()
        runner = asyncio.create_task(self._run(live, claimed_at), name=f"turn {turn.id}")
        try:
            ended: set[asyncio.Future[Any]] = {runner, live.overdue}
            await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
            ending = self._ending(live, runner)
            note_ending(live.span, ending, usage=live.runner.usage if live.runner else {})
            return await self._end(live, ending)
        finally:
            del self._live[turn.id]
            self._scopes.clear(scope, live.token)
            self._leave_behind(runner)
            if live.is_fenced:
                runner.add_done_callback(lambda _: live.when_lost())

    async def _apply_stored(self) -> None:
        """Apply at once what is stored; the poll and every write would find it, too."""
        try:
            await self.check_requests()
        except Exception:
            logger.exception("The stored requests could not be read")

    def _leave_behind(self, runner: "asyncio.Task[TurnEnding | None]") -> None:
        """Give up on a runner whose turn has ended without it; it is kept until it is gone."""
        if runner.cancel():
            self._left_behind.add(runner)
            runner.add_done_callback(self._left_behind.discard)

    async def _run(self, live: RunningTurn, claimed_at: int) -> TurnEnding | None:
        """Return how the turn ended; None if it is not ours any more."""
        ids = _ids_of(live.turn)
        try:
            live.runner = await self._make_runner(live)
            # What was told since may have been of this turn, before it was live here.
            if not live.turn.is_new or self._notified_at >= claimed_at:
                await self._apply_stored()
            return await live.runner.run()
        except Fenced:
            logger.warning("A turn was fenced", extra=ids)
            live.is_fenced = True
            return None
        except NotStored:
            logger.exception("What happened in a turn could not be stored", extra=ids)
            return _NOT_STORED
        except TurnRefused as error:
            logger.warning("A turn could not be run", extra={**ids, "code": error.code})
            return TurnEnding(
                status=TurnStatus.FAILED, error_code=error.code, error_message=error.message
            )
        except Exception:
            logger.exception("A turn failed", extra=ids)
            return TurnEnding(
                status=TurnStatus.FAILED,
                error_code="internal_error",
                error_message=texts.INTERNAL_ERROR,
            )

    def _ending(
        self, live: RunningTurn, runner: "asyncio.Task[TurnEnding | None]"
    ) -> TurnEnding | None:
        if runner.done() and not runner.cancelled():
            return runner.result()
        logger.warning(
            "A turn did not end in time and was left behind", extra={"turn_id": str(live.turn.id)}
        )
        if live.runner is not None and isinstance(live.runner.failure, NotStored):
            return _NOT_STORED
        return ending_of(live.token.cancellation or Cancellation(reason=CancelReason.ERROR))

    async def _end(self, live: RunningTurn, ending: TurnEnding | None) -> bool:
        """Store the ending, as long as the lease is held. Until then this process is the only one that can (C1).

        A process that goes down gives up after a few attempts: its successor finds the turn (H4). Return whether another
        turn may begin now, as far as is known.
        """
        if ending is None:
            return True
        runner = live.runner
        steps, usage = (runner.steps, runner.usage) if runner else (0, {})
        for attempt in count(1):
            if live.is_fenced:
                return True
            outcomes, answer = (dict(runner.outcomes), runner.answer) if runner else ({}, None)
            if attempt > END_ATTEMPTS:  # what cannot be stored must not keep the turn from its end
                ending = ending if answer is None else _NOT_STORED
                outcomes, answer = {}, None
            try:
                return await self._store.end_turn(
                    live.turn, ending, steps=steps, usage=usage, outcomes=outcomes, answer=answer
                )
            except Exception:
                logger.exception(
                    "The end of a turn was not stored", extra={"turn_id": str(live.turn.id)}
                )
                if self.is_draining and attempt >= END_ATTEMPTS:
                    return True
                await asyncio.sleep(min(0.1 * 2 ** min(attempt, 10), END_PAUSE))
        raise AssertionError("the attempts never end")

    async def _poll(self) -> None:
        self._claimer.fill()  # a turn may wait for a person now, which nobody tells
        if self._on_poll is not None:
            await self._on_poll()

    async def _sweep(self) -> None:
        await self._drop_deleted()
        await self._store.sweep(lambda: tuple(self._live))
        await self._store.dispatch_again()
        if self.has_room:
            for conversation_id in await self._store.waiting_conversations():
                self.wake(conversation_id)

    async def _drop_deleted(self) -> None:
        """End the tools of turns that are stored nowhere any more: they may write nothing for long, and notice nothing."""
        for turn_id in await self._store.find_deleted(tuple(self._live)):
            if (live := self._live.get(turn_id)) is not None:
                live.is_fenced = True
                live.token.cancel(Cancellation(reason=CancelReason.ERROR, note="it was deleted"))


def _ids_of(turn: ClaimedTurn) -> dict[str, str]:
    return {"turn_id": str(turn.id), "conversation_id": str(turn.conversation_id)}


async def _wait_for_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tuple(tasks))
