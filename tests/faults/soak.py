"""The soak: a site under load whose processes and servers are broken at random, then the checker.

    python -m tests.faults.soak

Parameters by environment:

- SOAK_MODE: embedded or scaled
- SOAK_SEED: it is printed; the same seed makes the same plan
- SOAK_SEEDS: how many one after another
- SOAK_TURNS, SOAK_RUNNERS, SOAK_CONVERSATIONS
- SOAK_FAULTS: at least so many
- SOAK_PAUSE: longest seconds between two faults of one process
- SOAK_KEEP: keep what a failed one has left
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import django

from scripts.servers import Postgres, Redis, passing
from tests.faults.checkpoints import CHECKPOINTS, WEB_CHECKPOINTS
from tests.faults.fault_injection import (
    DRAIN_GRACE,
    Fault,
    FaultInjector,
    Pace,
    ProcessFaults,
    ServerFaults,
)
from tests.faults.load_generator import LoadGenerator, LoadReport
from tests.faults.site import Blank, Site, make_blank
from tests.fork_server import ForkServer
from tests.processes import Process

SPANS = {
    "TURNS_POLL_INTERVAL": 0.3,
    "TURNS_LEASE_TTL": 4.0,
    "TURNS_LEASE_FENCE_AFTER": 2.7,
    "TURNS_LEASE_RENEW_INTERVAL": 0.5,
    "TURNS_SWEEP_INTERVAL": 0.5,
    "TURNS_DRAIN_GRACE": DRAIN_GRACE,
    "TURNS_MAX_QUEUED": 1000,
}
CANCEL_BOUND = 30.0  # seconds: a lease, a sweep, outages, and a machine that is never idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one soak does; all that is random follows from the seed."""

    seed: int
    mode: str = "scaled"
    turns: int = 500
    faults: int = 60
    runners: int = 4
    conversations: int = 12
    longest_pause: float = 5.0


class Soak:
    """One run against one site."""

    def __init__(self, plan: Plan, site: Site, *, servers: tuple[Postgres, Redis] | None) -> None:
        self._plan = plan
        self._site = site
        self._servers = servers
        self._pace = Pace(turns=plan.turns, faults=plan.faults)
        self.report = LoadReport()

    def run(self) -> list[str]:
        """Run it and return what is wrong."""
        for name in self._names:
            self._start(name)
        injectors = [self._of_process(name) for name in self._names]
        of_servers = self._of_servers(*self._servers) if self._servers else None
        every = [*injectors, of_servers] if of_servers else injectors
        load = LoadGenerator(
            self._site,
            conversations=self._plan.conversations,
            rng=random.Random(f"{self._plan.seed} people"),
            report=self.report,
        )
        threads = [threading.Thread(target=injector.run, daemon=True) for injector in injectors]
        threads.append(threading.Thread(target=load.run, args=[self._pace], daemon=True))
        for thread in threads:
            thread.start()
        if of_servers:
            of_servers.run()  # in this thread: a server ends with the one that has started it
        for thread in threads:
            thread.join()
        self.report.faults = [fault for injector in every for fault in injector.done]
        for who in (*every, load):
            if who.problem is not None:
                raise who.problem
        return self._judge(load)

    def _judge(self, load: LoadGenerator) -> list[str]:
        found = [] if load.until_settled() else ["not all turns came to an end"]
        found += self._site.verdict(cancel_within=CANCEL_BOUND)
        known = self._site.record().turns_by_id
        found += [
            f"turn {turn}: accepted, then lost"
            for turn in self.report.accepted
            if turn not in known
        ]
        found += [
            f"turn {turn}: its cancel was accepted, and it is {known[turn]['status']}"
            for turn in self.report.cancelled
            if turn in known and known[turn]["status"] == "completed"
        ]
        return found

    def _of_process(self, name: str) -> FaultInjector:
        rng = random.Random(f"{self._plan.seed} {name}")
        process = ProcessFaults(
            name,
            self._site,
            start=partial(self._start, name),
            places=CHECKPOINTS
            if self._plan.mode == "embedded" or name != "web"
            else WEB_CHECKPOINTS,
            rng=rng,
            is_over=self._pace.is_over,
        )
        return self._injector(name, process.faults, rng=rng, tend=process.tend)

    def _of_servers(self, postgres: Postgres, redis: Redis) -> FaultInjector:
        rng = random.Random(f"{self._plan.seed} servers")
        servers = ServerFaults(
            postgres, redis, database=self._site.database, rng=rng, is_over=self._pace.is_over
        )
        return self._injector("servers", servers.faults, rng=rng)

    def _injector(self, name: str, faults: Sequence[Fault], **how: Any) -> FaultInjector:
        pause = self._plan.longest_pause
        return FaultInjector(name, faults, longest_pause=pause, pace=self._pace, **how)

    @property
    def _names(self) -> list[str]:
        if self._plan.mode == "embedded":
            return ["web"]
        return [*(f"runner{number}" for number in range(self._plan.runners)), "web"]

    def _start(self, name: str) -> Process:
        if self._plan.mode == "embedded":
            return self._site.serve(name)
        if name == "web":
            return self._site.serve(name, role="web")
        return self._site.run_turns(name)


class SoakEnvironment:
    """What several soaks need: servers, migrated databases."""

    def __init__(self, stack: ExitStack, mode: str) -> None:
        self.mode = mode
        self.fork_server = ForkServer()
        stack.callback(self.fork_server.close)
        self.servers: tuple[Postgres, Redis] | None = None
        if mode == "scaled":
            postgres = stack.enter_context(passing(partial(Postgres, is_durable=False)))
            self.servers = (postgres, stack.enter_context(passing(Redis)))
        self.var = Path(tempfile.mkdtemp(prefix="turnkeeper-soak-"))
        if not os.environ.get("SOAK_KEEP"):
            stack.callback(shutil.rmtree, self.var, ignore_errors=True)
        self.blank: Blank = make_blank(self.var, postgres=self.servers and self.servers[0])

    def soak(self, plan: Plan) -> tuple[list[str], LoadReport]:
        """Run one plan on a new site."""
        var = self.var / f"{plan.mode}_{plan.seed}"
        var.mkdir()
        postgres, redis = self.servers or (None, None)
        site = Site(
            var,
            blank=self.blank,
            fork_server=self.fork_server,
            postgres=postgres,
            redis=redis,
            **SPANS,
        )
        soak = Soak(plan, site, servers=self.servers)
        found = ["it did not come to its end"]
        try:
            found = soak.run()
        except Exception as problem:  # noqa: BLE001 - the other seeds are still to come
            found = [f"{type(problem).__name__}: {problem}"]
        finally:
            if found and os.environ.get("SOAK_KEEP"):
                _say(f"Kept: {var}")
                (var / "record.json").write_text(json.dumps(asdict(site.record()), default=str))
                for process in site.processes.values():
                    process.kill()
            else:
                site.leave()
        return found, soak.report


def main() -> None:
    """Soak as the environment says, and tell what is wrong."""
    django.setup()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    mode = os.environ.get("SOAK_MODE", "scaled")
    first = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1_000_000))
    seeds = range(first, first + int(os.environ.get("SOAK_SEEDS", "1")))
    passed = 0
    with ExitStack() as stack:
        ground = SoakEnvironment(stack, mode)
        for seed in seeds:
            plan = Plan(
                seed=seed,
                mode=mode,
                turns=int(os.environ.get("SOAK_TURNS", "500")),
                faults=int(os.environ.get("SOAK_FAULTS", "60")),
                runners=int(os.environ.get("SOAK_RUNNERS", "4")),
                conversations=int(os.environ.get("SOAK_CONVERSATIONS", "12")),
                longest_pause=float(os.environ.get("SOAK_PAUSE", "5")),
            )
            _say(f"SOAK_SEED={seed} {plan}")
            began_at = time.monotonic()
            found, report = ground.soak(plan)
            passed += not found
            verdict = "BROKEN" if found else "all promises kept"
            _say(f"{report} in {time.monotonic() - began_at:.0f} s: {verdict}")
            for sentence in found:
                _say(f"  {sentence}")
    _say(f"{passed} of {len(seeds)} seeds passed")
    sys.exit(0 if passed == len(seeds) else 1)


def _say(sentence: str) -> None:
    print(sentence, flush=True)  # noqa: T201 - for whoever started it


if __name__ == "__main__":
    main()
