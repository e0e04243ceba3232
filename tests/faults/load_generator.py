"""Load on a site: users who send messages, cancel turns, and resume parked conversations."""

import itertools
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import httpx

from tests.faults.fault_injection import Pace, persist
from tests.faults.site import Site
from tests.support import eventually_sync

SETTLE_BOUND = 60.0
CANCELLED = 0.2  # of the turns
WAITING = 3  # turns for each conversation, so that faults meet work until the end
MESSAGES = (
    "help",
    "slowly one two three four",
    'call affect {"key": "a"}',
    'call affect {"key": "b", "seconds": 0.5}',
    'call affect {"key": "c", "seconds": 0.2}\ncall affect {"key": "d"}\ncall affect {"key": "e", "seconds": 0.4}',
    'call hang {"key": "f", "seconds": 0.5}',
    'call swallow {"key": "g", "seconds": 2}',
    "status",
)


@dataclass(slots=True)
class LoadReport:
    """Counts what the load and the faults did."""

    accepted: dict[str, str] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    resumed: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = Counter(fault.split()[0] for fault in self.faults)
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        return (
            f"{len(self.accepted)} turns, {len(self.cancelled)} cancels, {self.resumed} conversations let go on, "
            f"{len(self.faults)} faults ({listed})"
        )


class LoadGenerator:
    """Uses several conversations at the same time."""

    def __init__(
        self, site: Site, *, conversations: int, rng: random.Random, report: LoadReport
    ) -> None:
        self.problem: Exception | None = None
        self._client = site.client()
        self._site = site
        self._conversations = conversations
        self._rng = rng
        self._report = report

    def run(self, pace: Pace) -> None:
        """Send messages until the run is over. Keep the problem if no answer comes."""
        try:
            self._talk(pace)
        except Exception as problem:  # noqa: BLE001 - told by the main thread
            self.problem = problem
            pace.is_over.set()

    def until_settled(self) -> bool:
        """Wait until no turn waits or runs, and return whether that came in time."""

        def is_settled() -> bool:
            self._let_go_on()
            return not persist(self._site.active_turns)

        with suppress(AssertionError):
            return eventually_sync(is_settled, timeout=SETTLE_BOUND)
        return False

    def _talk(self, pace: Pace) -> None:
        made = [persist(self._client.converse) for _ in range(self._conversations)]
        is_over = pace.is_over
        for number in itertools.takewhile(lambda _: not is_over.is_set(), itertools.count()):
            text = self._rng.choice(MESSAGES)
            say = partial(self._say, self._rng.choice(made), text, client_id=f"turn-{number}")
            turn_id = persist(say)
            self._report.accepted[turn_id] = text
            pace.note_turn()
            if self._rng.random() < CANCELLED:
                is_over.wait(self._rng.uniform(0, 0.5))
                self._cancel(turn_id)
            is_over.wait(self._rng.uniform(0, 0.1))
            while not is_over.is_set() and self._is_too_much():
                is_over.wait(0.2)

    def _say(self, conversation_id: str, text: str, *, client_id: str) -> str:
        self._let_go_on()
        return self._client.say(conversation_id, text, client_id=client_id)

    def _cancel(self, turn_id: str) -> None:
        with suppress(httpx.TransportError):
            if self._client.cancel(turn_id).status_code == 200:
                self._report.cancelled.append(turn_id)

    def _let_go_on(self) -> None:
        for conversation_id in persist(self._site.parked_conversations):
            with suppress(httpx.TransportError):
                self._report.resumed += self._client.resume(str(conversation_id)).is_success

    def _is_too_much(self) -> bool:
        self._let_go_on()
        return len(persist(self._site.active_turns)) > WAITING * self._conversations
