"""Random faults of a site: of its processes, and of the servers that it needs."""

import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import httpx
from django.db import InterfaceError, OperationalError

from scripts.servers import Postgres, Redis, Server
from tests.faults.postgres_faults import cut_connections
from tests.faults.site import Site
from tests.processes import Process
from tests.support import eventually_sync

T = TypeVar("T")
Fault = Callable[[], bool]

DRAIN_GRACE = 1.0  # seconds
EXIT_BOUND = DRAIN_GRACE + 10.0 + 5.0  # as promised, and what a machine takes that is never idle
START_BOUND = 180.0
LONGEST_FREEZE = 6.0  # sometimes shorter than a lease, sometimes longer
LONGEST_OUTAGE = 4.0  # sometimes shorter than it takes a process to fence itself, sometimes longer
_UNANSWERED = (AssertionError, httpx.TransportError, InterfaceError, OperationalError)
REACH_BOUND = 3.0  # in which a process that has work comes past most places


class Pace:
    """Spreads faults over turns: so many for so many, however fast the machine is; `is_over` when both were reached."""

    def __init__(self, *, turns: int, faults: int) -> None:
        self.is_over = threading.Event()
        self._turns = turns
        self._faults = faults
        self._said = 0
        self._harmed = 0
        self._due = threading.Semaphore(0)
        self._lock = threading.Lock()

    def note_turn(self) -> None:
        """A turn was accepted."""
        with self._lock:
            due_before = self._said * self._faults // self._turns
            self._said += 1
            for _ in range(self._said * self._faults // self._turns - due_before):
                self._due.release()
            if self._said >= self._turns and self._harmed >= self._faults:
                self.is_over.set()

    def note_fault(self, *, has_harmed: bool) -> None:
        """A fault was done; one that did no harm is made up for."""
        with self._lock:
            self._harmed += has_harmed
        if not has_harmed:
            self._due.release()

    def until_due(self, meanwhile: Callable[[], object] = lambda: None) -> bool:
        """Wait until the next fault is due, and return whether it still is to be done."""
        while not self.is_over.is_set():
            if self._due.acquire(timeout=0.1):
                return True
            meanwhile()
        return False


class FaultInjector:
    """Injects one fault after the other. Each comes once before one comes again; the seed decides the order.

    A fault is a function that returns whether it has done harm. `tend` runs while none is due: without its process, a
    site takes no turns, and no fault would ever be due again.
    """

    def __init__(
        self,
        name: str,
        faults: Sequence[Fault],
        *,
        rng: random.Random,
        longest_pause: float,
        pace: Pace,
        tend: Callable[[], object] = lambda: None,
    ) -> None:
        self.done: list[str] = []
        self.problem: Exception | None = None
        self._name = name
        self._faults = shuffled(faults, rng=rng)
        self._rng = rng
        self._longest_pause = longest_pause
        self._pace = pace
        self._tend = tend

    def run(self) -> None:
        """Inject faults until the run is over. Keep the problem if a process does not stop or start in time."""
        try:
            self._run()
        except Exception as problem:  # noqa: BLE001 - told by whoever has started this
            self.problem = problem
            self._pace.is_over.set()

    def _run(self) -> None:
        is_over = self._pace.is_over
        while not is_over.wait(self._rng.uniform(1.0, self._longest_pause)):
            if not self._pace.until_due(self._tend):
                return
            fault = next(self._faults)
            has_harmed = fault()
            self._pace.note_fault(has_harmed=has_harmed)
            if has_harmed:
                self.done.append(f"{fault.__name__} {self._name}")


class ProcessFaults:
    """The faults of one process; `start` starts it again, as a process manager would."""

    def __init__(
        self,
        name: str,
        site: Site,
        *,
        start: Callable[[], Process],
        places: Sequence[str],
        rng: random.Random,
        is_over: threading.Event,
    ) -> None:
        self._name = name
        self._site = site
        self._start = start
        self._rng = rng
        self._is_over = is_over
        self._places = shuffled(places, rng=rng)

    @property
    def faults(self) -> Sequence[Fault]:
        """All faults of the process."""
        return (self.kill, self.freeze, self.terminate, self.fall)

    def tend(self) -> None:
        """Start it again if it came past a place at the last moment. By itself it never ends, whatever it stands on."""
        process = self._site.processes[self._name]
        if not process.is_alive:
            said = f"{self._name} ended with {process.exit_code}:\n{process.own_words[-3000:]}"
            assert process.exit_code == -signal.SIGKILL, said
            self._start_again()

    def kill(self) -> bool:
        """It crashes."""
        self._process.kill()
        return self._start_again()

    def freeze(self) -> bool:
        """It stands still for a while."""
        process = self._process
        process.freeze()
        self._is_over.wait(self._rng.uniform(0.5, LONGEST_FREEZE))
        process.thaw()
        return True

    def terminate(self) -> bool:
        """It is told to go, and has to be gone in time."""
        self._process.terminate()
        self._process.wait(within=EXIT_BOUND)
        return self._start_again()

    def fall(self) -> bool:
        """It crashes at a place of the code, if it comes there."""
        process = self._process
        self._site.arm(self._name, next(self._places))
        process.has_ended(within=REACH_BOUND)
        self._site.arm(self._name, "")
        return not process.is_alive and self._start_again()

    @property
    def _process(self) -> Process:
        self.tend()
        return self._site.processes[self._name]

    def _start_again(self) -> bool:
        persist(self._start)
        return True


class ServerFaults:
    """The faults of the servers of a site."""

    def __init__(
        self,
        postgres: Postgres,
        redis: Redis,
        *,
        database: str,
        rng: random.Random,
        is_over: threading.Event,
    ) -> None:
        self._postgres = postgres
        self._redis = redis
        self._database = database
        self._rng = rng
        self._is_over = is_over

    @property
    def faults(self) -> Sequence[Fault]:
        """All faults of the servers."""
        return (
            self.cut_database,
            self.crash_database,
            self.silence_database,
            self.crash_redis,
            self.silence_redis,
        )

    def cut_database(self) -> bool:
        """Every connection is ended."""
        return bool(cut_connections(self._postgres, self._database))

    def crash_database(self) -> bool:
        """PostgreSQL is away for a while."""
        return self._crash(self._postgres)

    def silence_database(self) -> bool:
        """PostgreSQL does not answer for a while."""
        return self._silence(self._postgres)

    def crash_redis(self) -> bool:
        """Redis is away for a while."""
        return self._crash(self._redis)

    def silence_redis(self) -> bool:
        """Redis does not answer for a while."""
        return self._silence(self._redis)

    def _crash(self, server: Server) -> bool:
        server.crash()
        self._pass()
        server.start()
        return True

    def _silence(self, server: Server) -> bool:
        server.signal(signal.SIGSTOP)
        self._pass()
        server.start()
        return True

    def _pass(self) -> None:
        self._is_over.wait(self._rng.uniform(0.2, LONGEST_OUTAGE))


def shuffled(cards: Sequence[T], *, rng: random.Random) -> Iterator[T]:
    """Give every card once, in some order, and again in another one."""
    while True:
        yield from rng.sample(cards, len(cards))


def persist(ask: Callable[[], T], *, within: float = START_BOUND) -> T:
    """Ask again and again until there is an answer. Whoever is asked dies too, and so does what it stands on."""
    problems: list[Exception] = []

    def answer() -> list[T]:
        try:
            return [ask()]
        except _UNANSWERED as problem:
            problems.append(problem)
            return []

    try:
        [answered] = eventually_sync(answer, timeout=within)
    except AssertionError as late:
        raise AssertionError(f"no answer in {within} s: {problems[-1]}") from late
    return answered
