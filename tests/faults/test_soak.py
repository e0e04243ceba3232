"""A short soak for every change; `make soak` takes its time. Seeds that have failed once stay here."""

from typing import Any

import pytest

from scripts.servers import Postgres, Redis
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.faults.soak import SPANS, Plan, Soak

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


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_g06_g07_many_turns_and_many_faults_in_one_process(embedded: MakeSite, seed: int):
    soak(embedded(**SPANS), seed=seed, mode="embedded", turns=40)
