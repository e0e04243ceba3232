"""Start here: the supervisor owns the live turns of a process, runs them, applies requests, and stores their endings.

A turn runs in a separate task, independent of connections. When it is cancelled, its runner and its tools have grace
periods. If they have not ended afterwards, the supervisor ends the turn without them (C1).
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import count
from typing import Any
from uuid import UUID

from governance import (
    Cancellation,
    CancellationToken,
    CancelReason,
    LiveCall,
)
from governance.logs import bind
from turns.core import texts
from turns.core.exceptions import Fenced, NotStored, TurnRefused
from turns.core.periodic import run_periodically
from turns.core.ports import ClaimedTurn, TurnStore
from turns.core.runner import TurnRunner
from turns.core.tracing import note_ending, turn_span
from turns.core.turns import (
    PendingCancel,
    PendingDecision,
    PendingRequest,
    PendingTimeout,
    TurnEnding,
    TurnStatus,
    ending_of,
)

logger = logging.getLogger(__name__)

SWEEP_JITTER = 0.2  # so that processes do not sweep simultaneously
FENCE_LOOK = 0.5  # seconds between two checks of ownership
# After this many failed attempts, an ending is stored without results; during a shutdown, it is not tried again.
END_ATTEMPTS = 4
END_PAUSE = 3.0  # maximum seconds between two attempts

_NOT_STORED = TurnEnding(
    status=TurnStatus.INTERRUPTED, error_code="not_stored", error_message=texts.NOT_STORED
)
ANYWHERE = UUID(int=0)  # requests a slot for any queued turn, until no turn is queued

Run = Callable[[ClaimedTurn, CancellationToken], Awaitable[None]]
"""Runs a claimed turn to its end. The token is the parent of the turn's token."""


class RunningTurn:
    """A turn that this process runs. `overdue` resolves when the turn should have ended after a cancel but has not.

    `root` is the parent of the tokens of all turns of the process. If the turn is fenced, `when_lost` is called after
    its runner has ended. `unstored` contains a future for each cancel request that has been applied but is not yet
    stored.
    """

    def __init__(
        self, turn: ClaimedTurn, *, cancel_bound: float, root: CancellationToken | None = None
    ) -> None:
        self.turn = turn
        self.token = CancellationToken(root)
        self.span = turn_span(turn)
        self.token.on_cancel(self.span.note_request)
        self.runner: TurnRunner | None = None
        self.is_fenced = False
        self.when_lost: Callable[[], object] = lambda: None
        self.unstored: set[asyncio.Future[None]] = set()
        self._timeouts: set[int] = set()  # ids of the applied changes of limits
        self._loop = asyncio.get_running_loop()
        self.overdue: asyncio.Future[None] = self._loop.create_future()
        self.token.on_cancel(
            lambda _: self._loop.call_soon_threadsafe(
                self._loop.call_later, cancel_bound, self._note_overdue
            )
        )

    @property
    def is_waiting(self) -> bool:
        """Whether the turn only waits for a person or for another turn."""
        return self.runner is not None and self.runner.is_waiting

    def find_call(self, tool_id: str) -> LiveCall | None:
        """Return the waiting or running call with this id."""
        return self.runner.find_call(tool_id) if self.runner else None

    @property
    def open_questions(self) -> list[str]:
        """Return the ids of the questions that its calls wait for."""
        calls = self.runner.waiting_calls if self.runner else ()
        return [call.question.id for call in calls if call.question is not None]

    def apply(self, request: PendingRequest) -> bool:
        """Apply a request; repeated calls have no further effect. Return False if it must wait for its call
        to start.
        """
        match request:
            case PendingCancel():
                return self._cancel(request)
            case PendingTimeout():
                return request.is_late or self._set_timeout(request)
            case PendingDecision():
                call = self.find_call(request.tool_id)
                if call is not None:
                    call.answer(request.decision)
                return call is not None

    async def until_stored(self) -> None:
        """Wait until the applied requests are stored, because their effects must be stored after them."""
        while self.unstored and not self.is_fenced:
            await asyncio.wait(self.unstored, timeout=FENCE_LOOK)

    def _cancel(self, request: PendingCancel) -> bool:
        if request.tool_id:
            call = self.find_call(request.tool_id)
            return call is not None and call.cancel(request.cancellation)
        if request.mode == "after_step" and self.runner is not None:
            self.runner.cancel_after_step(request.cancellation)
        elif request.mode == "report" and self.runner is not None:
            self.runner.request_report()
        else:
            self.token.cancel(request.cancellation)
        return True

    def _set_timeout(self, request: PendingTimeout) -> bool:
        call = self.find_call(request.tool_id)
        if self.runner is None or call is None or not call.has_policy:
            return False
        if request.id not in self._timeouts:
            self._timeouts.add(request.id)
            self.runner.set_timeout(call, request)
        return True

    def _note_overdue(self) -> None:
        if not self.overdue.done():
            self.overdue.set_result(None)


MakeRunner = Callable[[RunningTurn], Awaitable[TurnRunner]]


class Phase(Enum):
    """The phase of a process, which determines whether it may start turns."""

    OPEN = "open"
    FENCED = "fenced"  # its lease is lost; no turn starts until it has a new one
    DRAINING = "draining"  # it is shutting down; no more turns start


class TurnSlots:
    """The slots of a process. At most `limit` turns may be busy, or any number if it is None (P4). `busy` returns the
    number of busy turns.

    The store decides which queued turn gets a slot, because it knows the turns and users of all processes. A request
    means that a conversation has a queued turn; it does not reserve a slot.
    """

    def __init__(self, limit: int | None, *, busy: Callable[[], int]) -> None:
        self._limit = limit
        self._busy = busy
        self._claims = 0
        self._requests: dict[UUID, None] = {}
        self._was_full = False

    def request(self, conversation_id: UUID) -> None:
        """Record that a conversation has a queued turn; ignored in a process without slots."""
        if self._limit != 0:
            self._requests.setdefault(conversation_id)

    def forget(self) -> None:
        self._requests.clear()

    def acquire(self) -> UUID | None:
        """Acquire a free slot for a claim. Return the id of the conversation that requested it, or None if no slot is
        free or requested.
        """
        has_room = self._limit is None or self._busy() + self._claims < self._limit
        requester = next(iter(self._requests), None) if has_room else None
        if requester is not None:
            del self._requests[requester]
            self._claims += 1
        return requester

    def release(self) -> None:
        """Release the slot of a finished claim; a claimed turn is counted as busy from then on."""
        self._claims -= 1

    def has_room_again(self) -> bool:
        """Return whether a slot has become free since the last call of this method."""
        was_full = self._was_full
        self._was_full = self._limit is not None and self._busy() >= self._limit
        return was_full and not self._was_full


class TurnClaimer:
    """Claims as many turns as there are free slots, each in a task that also runs the turn.

    The store decides which turn is next, regardless of which conversation requested the slot (P4).
    """

    def __init__(
        self,
        store: TurnStore,
        *,
        run: Run,
        slots: TurnSlots,
        is_live: Callable[[UUID], bool],
    ) -> None:
        self.phase = Phase.OPEN
        self.tasks: set[asyncio.Task[None]] = set()
        self._store = store
        self._run = run
        self._slots = slots
        self._is_live = is_live
        self._root = CancellationToken()
        self._fences = 0  # number of leases lost
        self._failure: type[Exception] | None = None  # type of the error in the last claim

    def fence(self) -> None:
        """Stop claiming until `resume`; a draining process keeps draining."""
        if self.phase is Phase.OPEN:
            self.phase = Phase.FENCED
        self._fences += 1
        self._slots.forget()

    def resume(self) -> None:
        """Resume claiming after a fence."""
        if self.phase is Phase.FENCED:
            self.phase = Phase.OPEN
        self.look()

    def close(self) -> None:
        self.phase = Phase.DRAINING
        self._slots.forget()

    def cancel_all(self, cancellation: Cancellation) -> None:
        """Cancel every turn of this process, including turns that are just being claimed."""
        root, self._root = self._root, CancellationToken()
        root.cancel(cancellation)

    def request(self, conversation_id: UUID) -> None:
        """Claim a turn when a slot is free, because this conversation may have a queued turn. If one of its turns is
        running here, the end of that turn repeats the request.
        """
        if not self._is_live(conversation_id):
            self._slots.request(conversation_id)
        self.fill()

    def look(self) -> None:
        """Claim queued turns while slots are free, even without a notification."""
        self._slots.request(ANYWHERE)
        self.fill()

    def fill(self) -> None:
        """Start a claim for each requested free slot."""
        if self._slots.has_room_again():
            self._slots.request(ANYWHERE)  # a full process receives no notifications
        if self.phase is not Phase.OPEN:
            self._slots.forget()
        while (requester := self._slots.acquire()) is not None:
            self._begin(requester)

    def _begin(self, requester: UUID) -> None:
        # an empty context, so that a turn does not inherit the context of the request that started it
        task = asyncio.get_running_loop().create_task(
            self._claim(requester, root=self._root, fences=self._fences),
            name=f"claim as conversation {requester} has a turn",
            context=contextvars.Context(),
        )
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _claim(self, requester: UUID, *, root: CancellationToken, fences: int) -> None:
        """Claim the next turn, regardless of which conversation requested the slot, and run it."""
        turn = None
        try:
            turn = await self._store.claim_next()
        except Exception as error:
            logger.error(  # noqa: TRY400 - with a traceback only if it is new
                "A turn could not be claimed: %s", error, exc_info=type(error) is not self._failure
            )
            self._failure = type(error)
        else:
            self._failure = None
        finally:
            self._slots.release()
        if turn is None:
            self.fill()
            return
        if fences < self._fences:
            return  # claimed under a lost lease; another process will end it
        if turn.conversation_id != requester:
            self._slots.request(requester)
        await self._run(turn, root)


class TurnSupervisor:
    """Starts, cancels and ends turns on one event loop.

    A turn is ended `cancel_bound` seconds after a cancel even if its runner does not end. Stored requests are read
    every `poll_interval` seconds, in case a wake-up was lost (C12); `on_poll` is awaited equally often. At most
    `max_live` turns are busy here, or any number if it is None; with 0, no turn runs here. The store decides which turn
    is next (P4). About every `sweep_interval` seconds, the supervisor ends turns that lost their owner and starts
    queued ones (H4).
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
        self._live: dict[UUID, RunningTurn] = {}
        self._claimer = TurnClaimer(
            store,
            run=self._oversee,
            slots=TurnSlots(max_live, busy=self._count_busy),
            is_live=self._is_live,
        )
        self._watching: tuple[asyncio.Task[None], ...] = ()
        self._grace_is_cut = asyncio.Event()
        self._abandoned: set[asyncio.Task[Any]] = set()

    @property
    def live_turns(self) -> Collection[RunningTurn]:
        return tuple(self._live.values())

    @property
    def is_draining(self) -> bool:
        return self._claimer.phase is Phase.DRAINING

    def start(self) -> None:
        self._claimer.look()
        if not self._watching:
            # Cancel requests have a separate task, because a slow poll must not delay a cancel (C12).
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
        """Note that a conversation has a queued turn. Repeated calls have no further effect.

        The next turn in the queue starts as soon as a slot is free.
        """
        self._claimer.request(conversation_id)

    def find_turn(self, turn_id: UUID) -> RunningTurn | None:
        return self._live.get(turn_id)

    async def check_requests(self) -> None:
        """Read and apply the stored requests for the live turns."""
        if self._live:
            questions = [question for live in self.live_turns for question in live.open_questions]
            self.apply_requests(await self._store.pending_requests(list(self._live), questions))

    def apply_requests(self, requests: Iterable[PendingRequest]) -> None:
        """Apply requests to the turns of this process; the next poll repeats requests that must wait."""
        self._store.settle_requests(
            [
                request
                for request in requests
                if (live := self._live.get(request.turn_id)) is not None and live.apply(request)
            ]
        )

    @contextmanager
    def obeyed(
        self, request: PendingCancel, *, for_descendants: Cancellation | None = None
    ) -> Iterator[frozenset[UUID]]:
        """Cancel local turns while the request is being stored, because the database may not respond.

        With `for_descendants`, local descendants of the turn are cancelled too. The cancelled turns write nothing until
        the block ends. Yield their ids.
        """
        future = asyncio.get_running_loop().create_future()
        requests = {request.turn_id: request}
        if for_descendants is not None:
            for turn_id in (frontier := [request.turn_id]):
                for live in self.live_turns:
                    if live.turn.parent_id == turn_id:
                        frontier.append(live.turn.id)
                        requests[live.turn.id] = PendingCancel(
                            turn_id=live.turn.id, cancellation=for_descendants
                        )
        turns = [live for live in self.live_turns if live.turn.id in requests]
        for live in turns:
            live.unstored.add(future)
            live.apply(requests[live.turn.id])
        try:
            yield frozenset(live.turn.id for live in turns)
        finally:
            future.set_result(None)
            for live in turns:
                live.unstored.discard(future)

    async def fence(self) -> None:
        """Drop every live turn because the lease is lost: end its tools, store nothing, start nothing.

        Return when they have ended or were abandoned. After `resume`, turns can start again.
        """
        self._claimer.fence()
        for live in self.live_turns:
            live.is_fenced = True
        self._claimer.cancel_all(
            Cancellation(reason=CancelReason.ERROR, note="the process lost its lease")
        )
        if self._claimer.tasks:
            await asyncio.wait(self._claimer.tasks, timeout=self._cancel_bound + 1.0)

    def resume(self) -> None:
        """Start turns again, because the process has a new lease."""
        self._claimer.resume()

    def close(self) -> None:
        self._claimer.close()

    def cut_grace(self) -> None:
        """End the grace period of a drain."""
        self._grace_is_cut.set()

    async def drain(self, *, grace: float) -> None:
        """Start no more turns, give live ones `grace` seconds, cancel the others with the reason `shutdown`, and wait
        for them to end.
        """
        self.close()
        await self._wait_for_turns(grace)
        self._claimer.cancel_all(Cancellation(reason=CancelReason.SHUTDOWN))
        if self._claimer.tasks:
            await asyncio.wait(self._claimer.tasks, timeout=self._cancel_bound + END_ATTEMPTS)
        for task in self._watching:
            task.cancel()
        if self._watching:
            await asyncio.wait(self._watching)
            self._watching = ()

    async def _wait_for_turns(self, grace: float) -> None:
        """Wait for the live turns until the grace period ends."""
        if not self._claimer.tasks or grace <= 0:
            return
        turns = tuple(self._claimer.tasks)
        ends: set[asyncio.Task[Any]] = {
            asyncio.create_task(self._grace_is_cut.wait(), name="end of the grace period"),
            asyncio.create_task(asyncio.wait(turns), name="end of the live turns"),
        }
        await asyncio.wait(ends, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()

    def _count_busy(self) -> int:
        """Return the number of busy turns; those that wait for a person or for another turn are not busy."""
        return sum(not live.is_waiting for live in self._live.values())

    def _is_live(self, conversation_id: UUID) -> bool:
        return any(live.turn.conversation_id == conversation_id for live in self._live.values())

    async def _oversee(self, turn: ClaimedTurn, root: CancellationToken) -> None:
        """Run the turn to its end, and request the next one of its conversation."""
        # If all turns were cancelled during the claim, this one starts cancelled.
        live = RunningTurn(turn, root=root, cancel_bound=self._cancel_bound)
        self._live[turn.id] = live
        with live.span:
            # The log lines of its tools have these ids too.
            bind(**_ids_of(turn), trace_id=live.span.trace_id)
            await self._run_to_end(live)
        self._claimer.request(turn.conversation_id)

    async def _run_to_end(self, live: RunningTurn) -> None:
        """Run the turn in a separate task, and store its ending."""
        turn = live.turn
        self._claimer.fill()
        runner = asyncio.create_task(self._run(live), name=f"turn {turn.id}")
        try:
            ends: set[asyncio.Future[Any]] = {runner, live.overdue}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            ending = self._ending(live, runner)
            note_ending(live.span, ending, usage=live.runner.usage if live.runner else {})
            await self._end(live, ending)
        finally:
            del self._live[turn.id]
            live.token.detach()
            self._abandon(runner)
            if live.runner is not None:  # it closes its clock only if it has begun to run
                live.runner.clock.close()
            if live.is_fenced:
                runner.add_done_callback(lambda _: live.when_lost())

    async def _apply_stored(self, turn_id: UUID) -> None:
        """Apply a cancel that arrived during the claim, before the poll or a write finds it."""
        try:
            self.apply_requests(await self._store.pending_cancels(turn_id))
        except Exception:
            logger.exception("The stored requests could not be read")

    def _abandon(self, runner: "asyncio.Task[TurnEnding | None]") -> None:
        """Cancel a runner whose turn was ended without it, and keep a reference until it ends."""
        if runner.cancel():
            self._abandoned.add(runner)
            runner.add_done_callback(self._abandoned.discard)

    async def _run(self, live: RunningTurn) -> TurnEnding | None:
        """Run the turn and return its ending; None if this process no longer owns it."""
        ids = _ids_of(live.turn)
        try:
            live.runner = await self._make_runner(live)
            await self._apply_stored(live.turn.id)
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
                status=TurnStatus.FAILED,
                error_code=error.code,
                error_message=error.message,
                error_detail=error.detail,
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

    async def _end(self, live: RunningTurn, ending: TurnEnding | None) -> None:
        """Store the ending while the lease is held, because no other process can do so (C1).

        During a shutdown, stop after a few attempts; another process then ends the turn (H4).
        """
        if ending is None:
            return
        runner = live.runner
        steps, usage = (runner.steps, runner.usage) if runner else (0, {})
        await live.until_stored()
        for attempt in count(1):
            if live.is_fenced:
                return
            outcomes, answer = (dict(runner.outcomes), runner.answer) if runner else ({}, None)
            if attempt > END_ATTEMPTS:  # a failing write must not keep the turn from ending
                ending = ending if answer is None else _NOT_STORED
                outcomes, answer = {}, None
            try:
                await self._store.end_turn(
                    live.turn, ending, steps=steps, usage=usage, outcomes=outcomes, answer=answer
                )
            except Exception:
                logger.exception(
                    "The end of a turn was not stored", extra={"turn_id": str(live.turn.id)}
                )
                if self.is_draining and attempt >= END_ATTEMPTS:
                    return
                await asyncio.sleep(min(0.1 * 2 ** min(attempt, 10), END_PAUSE))
            else:
                return

    async def _poll(self) -> None:
        self._claimer.fill()  # a turn that starts to wait frees its slot without a notification
        if self._on_poll is not None:
            await self._on_poll()

    async def _sweep(self) -> None:
        await self._drop_deleted()
        await self._store.sweep(lambda: tuple(self._live))
        self._claimer.look()

    async def _drop_deleted(self) -> None:
        """End the tools of deleted turns. Such turns may not write for a long time, so they would not notice the
        deletion.
        """
        for turn_id in await self._store.find_deleted(tuple(self._live)):
            if (live := self._live.get(turn_id)) is not None:
                live.is_fenced = True
                live.token.cancel(Cancellation(reason=CancelReason.ERROR, note="it was deleted"))


def _ids_of(turn: ClaimedTurn) -> dict[str, str]:
    return {"turn_id": str(turn.id), "conversation_id": str(turn.conversation_id)}
