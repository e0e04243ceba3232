"""What breaks a site at random: its processes, each by a bad luck of its own, and the servers that it stands on."""

import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import httpx
from django.db import InterfaceError, OperationalError

from scripts.servers import Postgres, Redis, Server
from tests.faults.processes import Process
from tests.faults.site import Site
from tests.support import eventually_sync

T = TypeVar("T")
Fault = Callable[[], bool]

DRAIN_GRACE = 1.0  # seconds
EXIT_BOUND = DRAIN_GRACE + 10.0 + 5.0  # as promised, and what a machine takes that is never idle
START_BOUND = 60.0
LONGEST_FREEZE = 6.0  # sometimes shorter than a lease, sometimes longer
LONGEST_OUTAGE = 4.0  # sometimes shorter than it takes a process to fence itself, sometimes longer
_UNANSWERED = (AssertionError, httpx.TransportError, InterfaceError, OperationalError)
REACH_BOUND = 3.0  # in which a process that has work comes past most places


class Breaker:
    """Does one fault after the other, each once before one comes again; which comes when follows from its luck.

    A fault is a function that returns whether it has done harm.
    """

    def __init__(
        self,
        name: str,
        faults: Sequence[Fault],
        *,
        luck: random.Random,
        longest_pause: float,
        is_over: threading.Event,
    ) -> None:
        self.done: list[str] = []
        self.problem: Exception | None = None
        self._name = name
        self._faults = shuffled(faults, luck=luck)
        self._luck = luck
        self._longest_pause = longest_pause
        self._is_over = is_over

    def run(self) -> None:
        """Break it until it is over; keep the problem if something does not end or begin as it has to."""
        try:
            while not self._is_over.wait(self._luck.uniform(1.0, self._longest_pause)):
                fault = next(self._faults)
                if fault():
                    self.done.append(f"{fault.__name__} {self._name}")
        except Exception as problem:  # noqa: BLE001 - told by whoever has started this
            self.problem = problem
            self._is_over.set()


class Unlucky:
    """A process of a site, with what happens to it; `start` starts it again, as whatever supervises it does."""

    def __init__(
        self,
        name: str,
        site: Site,
        *,
        start: Callable[[], Process],
        places: Sequence[str],
        luck: random.Random,
        is_over: threading.Event,
    ) -> None:
        self._name = name
        self._site = site
        self._start = start
        self._luck = luck
        self._is_over = is_over
        self._places = shuffled(places, luck=luck)

    @property
    def faults(self) -> Sequence[Fault]:
        """What can happen to it."""
        return (self.kill, self.freeze, self.terminate, self.fall)

    def kill(self) -> bool:
        """It crashes."""
        self._process.kill()
        return self._start_again()

    def freeze(self) -> bool:
        """It stands still for a while."""
        process = self._process
        process.freeze()
        self._is_over.wait(self._luck.uniform(0.5, LONGEST_FREEZE))
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
        process = self._site.processes[self._name]
        if not process.is_alive:
            # Of a place that it came past at the last moment. By itself it never ends, whatever it stands on.
            assert process.exit_code == -signal.SIGKILL, process.said[-3000:]
            self._start_again()
        return self._site.processes[self._name]

    def _start_again(self) -> bool:
        persist(self._start)
        return True


class Shaken:
    """The servers under a site, with what happens to them."""

    def __init__(
        self,
        postgres: Postgres,
        redis: Redis,
        *,
        database: str,
        luck: random.Random,
        is_over: threading.Event,
    ) -> None:
        self._postgres = postgres
        self._redis = redis
        self._database = database
        self._luck = luck
        self._is_over = is_over

    @property
    def faults(self) -> Sequence[Fault]:
        """What can happen to them."""
        return (
            self.cut_database,
            self.crash_database,
            self.silence_database,
            self.crash_redis,
            self.silence_redis,
        )

    def cut_database(self) -> bool:
        """Every connection is ended."""
        return bool(self._postgres.cut_connections(self._database))

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
        self._is_over.wait(self._luck.uniform(0.2, LONGEST_OUTAGE))


def shuffled(cards: Sequence[T], *, luck: random.Random) -> Iterator[T]:
    """Give every card once, in some order, and again in another one."""
    while True:
        yield from luck.sample(cards, len(cards))


def persist(ask: Callable[[], T], *, within: float = START_BOUND) -> T:
    """Ask again and again until there is an answer: whoever is asked dies too, and so does what it stands on."""
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
