"""The soak: a site under load whose processes are killed, stopped and told to go at random, then the checker.

    python -m tests.faults.soak

Parameters by environment: SOAK_MODE (embedded, scaled), SOAK_SEED (printed; the same seed makes the same plan),
SOAK_SEEDS (how many one after another), SOAK_TURNS, SOAK_RUNNERS, SOAK_CONVERSATIONS, SOAK_PAUSE (longest seconds between
two faults), SOAK_KEEP (keep what a failed one has left).
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import django
import httpx

from tests.faults.client import Client
from tests.faults.nursery import Nursery
from tests.faults.places import PLACES
from tests.faults.processes import Process
from tests.faults.servers import Postgres, Redis, find_postgres
from tests.faults.site import Blank, Site, make_blank

SPANS = {
    "TURNS_POLL_INTERVAL": 0.3,
    "TURNS_LEASE_TTL": 4.0,
    "TURNS_LEASE_FENCE_AFTER": 2.7,
    "TURNS_LEASE_RENEW_INTERVAL": 0.5,
    "TURNS_SWEEP_INTERVAL": 0.5,
    "TURNS_DRAIN_GRACE": 1.0,
    "TURNS_MAX_QUEUED": 1000,
}
LONGEST_FREEZE = 6.0  # seconds: sometimes shorter than a lease, sometimes longer
SETTLE_BOUND = 60.0
CANCELLED = 0.2  # of the turns
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one soak does; all that is random follows from the seed."""

    seed: int
    mode: str = "scaled"
    turns: int = 500
    runners: int = 4
    conversations: int = 12
    longest_pause: float = 5.0


@dataclass(slots=True)
class Tally:
    """What has happened."""

    accepted: dict[str, str] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Soak:
    """One run against one site."""

    def __init__(self, plan: Plan, site: Site, *, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._site = site
        self._say = say
        self._is_over = threading.Event()
        self._faults = random.Random(plan.seed)
        self._talk = random.Random(plan.seed + 1)
        self._problem: Exception | None = None
        self.tally = Tally()

    def run(self) -> list[str]:
        """Run it and return what is wrong."""
        self._start_all()
        breaking = threading.Thread(target=self._break, name="faults", daemon=True)
        breaking.start()
        try:
            self._converse()
        finally:
            self._is_over.set()
            breaking.join()
        if self._problem is not None:
            raise self._problem
        self._start_all()
        return self._judge()

    def _judge(self) -> list[str]:
        try:
            self._site.until_settled(within=SETTLE_BOUND)
        except AssertionError:
            self._say("Not all turns came to an end.")
        found = self._site.verdict()
        known = self._site.record().turns_by_id
        found += [
            f"turn {turn}: accepted, then lost" for turn in self.tally.accepted if turn not in known
        ]
        found += [
            f"turn {turn}: its cancel was accepted, and it is {known[turn]['status']}"
            for turn in self.tally.cancelled
            if turn in known and known[turn]["status"] == "completed"
        ]
        return found

    # People

    def _converse(self) -> None:
        client = self._site.client()
        conversations = [self._until(client.converse) for _ in range(self._plan.conversations)]
        for number in range(self._plan.turns):
            conversation = self._talk.choice(conversations)
            text = self._talk.choice(MESSAGES)
            name = f"{self._plan.seed}-{number}"
            turn_id = self._until(partial(client.say, conversation, text, client_id=name))
            self.tally.accepted[turn_id] = text
            if self._talk.random() < CANCELLED:
                self._is_over.wait(self._talk.uniform(0, 0.5))
                self._cancel(client, turn_id)
            self._is_over.wait(self._talk.uniform(0, 0.1))
            self._hold_back(conversations)

    def _cancel(self, client: Client, turn_id: str) -> None:
        with suppress(httpx.TransportError):
            if client.cancel(turn_id).status_code == 200:
                self.tally.cancelled.append(turn_id)

    def _hold_back(self, conversations: list[str]) -> None:
        """Leave no more waiting than a few for each conversation, so that faults meet work until the end."""
        while len(self._site.record().active_turns) > 3 * len(conversations):
            time.sleep(0.2)

    def _until(self, ask: Callable[[], str]) -> str:
        """Ask until there is an answer: web processes die too, and a message may be sent again."""
        deadline = time.monotonic() + SETTLE_BOUND
        while True:
            try:
                return ask()
            except (httpx.TransportError, AssertionError) as problem:
                if time.monotonic() > deadline:
                    raise AssertionError(f"no answer: {problem}") from problem
                time.sleep(0.1)

    # Faults

    def _break(self) -> None:
        try:
            self._break_on()
        except Exception as problem:  # noqa: BLE001 - told by the main thread
            self._problem = problem

    def _break_on(self) -> None:
        while not self._is_over.wait(self._faults.uniform(1.0, self._plan.longest_pause)):
            name = self._faults.choice(self._names)
            kind = self._faults.choice(("kill", "freeze", "terminate", "place"))
            span = self._faults.uniform(0.5, LONGEST_FREEZE)
            place = self._faults.choice(PLACES)
            self.tally.faults.append(f"{kind} {name}")
            process = self._site.processes[name]
            match kind:
                case "kill":
                    process.kill()
                case "freeze":
                    process.freeze()
                    self._is_over.wait(span)
                    process.thaw()
                case "terminate":
                    process.terminate()
                    self._wait_for(process, 6.0)
                case "place":
                    self._site.arm(name, place)
                    self._wait_for(process, 3.0)
                    self._site.arm(name, "")
            if not process.is_alive:
                self._start(name)

    def _wait_for(self, process: Process, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while process.is_alive and time.monotonic() < deadline:
            time.sleep(0.05)

    @property
    def _names(self) -> list[str]:
        if self._plan.mode == "embedded":
            return ["web"]
        return [*(f"runner{number}" for number in range(self._plan.runners)), "web"]

    def _start_all(self) -> None:
        for name in self._names:
            process = self._site.processes.get(name)
            if process is not None and process.is_alive:
                process.thaw()
                continue
            self._start(name)

    def _start(self, name: str) -> None:
        if self._plan.mode == "embedded":
            self._site.serve(name)
        elif name == "web":
            self._site.serve_uvicorn(name, role="web")
        else:
            self._site.run_turns(name)


class Ground:
    """What several soaks need: servers, migrated databases."""

    def __init__(self, stack: ExitStack, mode: str) -> None:
        self.mode = mode
        self.nursery = Nursery()
        stack.callback(self.nursery.close)
        self.postgres: Postgres | None = None
        self.redis: Redis | None = None
        if mode == "scaled":
            programs = find_postgres()
            assert programs is not None, "needs PostgreSQL"
            self.postgres, self.redis = Postgres(programs), Redis()
            for server in (self.postgres, self.redis):
                stack.callback(server.remove)
                server.start()
        self.var = Path(tempfile.mkdtemp(prefix="turnkeeper-soak-"))
        if not os.environ.get("SOAK_KEEP"):
            stack.callback(shutil.rmtree, self.var, ignore_errors=True)
        self.blank: Blank = make_blank(self.var, postgres=self.postgres)

    def soak(self, plan: Plan, *, say: Callable[[str], None]) -> tuple[list[str], Tally]:
        """Run one plan on a new site."""
        var = self.var / f"{plan.mode}_{plan.seed}"
        var.mkdir()
        site = Site(
            var,
            blank=self.blank,
            nursery=self.nursery,
            postgres=self.postgres,
            redis=self.redis,
            **SPANS,
        )
        soak = Soak(plan, site, say=say)
        found: list[str] | None = None
        try:
            found = soak.run()
            return found, soak.tally
        finally:
            if found != [] and os.environ.get("SOAK_KEEP"):
                say(f"Kept: {var}")
                for process in site.processes.values():
                    process.kill()
            else:
                site.leave()


def main() -> None:
    """Soak as the environment says, and tell what is wrong."""
    django.setup()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    mode = os.environ.get("SOAK_MODE", "scaled")
    first = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1_000_000))
    passed = 0
    seeds = range(first, first + int(os.environ.get("SOAK_SEEDS", "1")))
    with ExitStack() as stack:
        ground = Ground(stack, mode)
        for seed in seeds:
            plan = Plan(
                seed=seed,
                mode=mode,
                turns=int(os.environ.get("SOAK_TURNS", "500")),
                runners=int(os.environ.get("SOAK_RUNNERS", "4")),
                conversations=int(os.environ.get("SOAK_CONVERSATIONS", "12")),
                longest_pause=float(os.environ.get("SOAK_PAUSE", "5")),
            )
            _say(f"SOAK_SEED={seed} {plan}")
            began_at = time.monotonic()
            found, tally = ground.soak(plan, say=_say)
            passed += not found
            _say(
                f"{len(tally.accepted)} turns, {len(tally.cancelled)} cancels, {len(tally.faults)} faults in "
                f"{time.monotonic() - began_at:.0f} s: {'all promises kept' if not found else 'BROKEN'}"
            )
            for sentence in found:
                _say(f"  {sentence}")
    _say(f"{passed} of {len(seeds)} seeds passed")
    sys.exit(0 if passed == len(seeds) else 1)


def _say(sentence: str) -> None:
    print(sentence, flush=True)  # noqa: T201 - for whoever started it


if __name__ == "__main__":
    main()
