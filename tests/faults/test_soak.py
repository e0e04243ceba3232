"""A short soak for every change; `make soak` takes its time. Seeds that have failed once stay here."""

import os
from typing import Any

import pytest

from scripts.servers import Postgres, Redis
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.faults.soak import SPANS, Plan, Soak
from tests.processes import run_python

SEEDS = [7]


def soak(site: Site, *, servers: tuple[Postgres, Redis] | None = None, **plan: Any) -> None:
    run = Soak(Plan(conversations=5, faults=8, longest_pause=3.0, **plan), site, servers=servers)
    assert run.run() == [], (run.report.faults, site.var)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_g06_g07_many_turns_many_faults_one_at_a_time_and_in_order(
    scaled: MakeSite, postgres: Postgres, redis: Redis, seed: int
):
    site = scaled(**SPANS)
    soak(site, servers=(postgres, redis), seed=seed, mode="scaled", turns=40, runners=2)


def test_the_command_runs_by_itself():
    few = {
        "SOAK_MODE": "embedded",
        "SOAK_TURNS": "1",
        "SOAK_FAULTS": "0",
        "SOAK_CONVERSATIONS": "1",
    }
    ended = run_python("-m", "tests.faults.soak", environment={**os.environ, **few})
    assert ended.stdout.splitlines()[-1:] == ["1 of 1 seeds passed"], ended.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_g06_g07_many_turns_and_many_faults_in_one_process(embedded: MakeSite, seed: int):
    soak(embedded(**SPANS), seed=seed, mode="embedded", turns=40)
