"""A short soak for every change; `make soak` takes its time. Seeds that have failed once stay here."""

import pytest

from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.faults.soak import SPANS, Plan, Soak

SEEDS = [7]


def soak(site: Site, **plan: object) -> None:
    run = Soak(Plan(conversations=5, longest_pause=3.0, **plan), site, say=print)
    found = run.run()
    assert found == [], (run.tally.faults, site.var)
    assert run.tally.faults


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_g06_many_turns_many_faults_one_at_a_time_and_in_order(scaled: MakeSite, seed: int):
    soak(scaled(**SPANS), seed=seed, mode="scaled", turns=40, runners=2)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_g06_many_turns_and_many_faults_in_one_process(embedded: MakeSite, seed: int):
    soak(embedded(**SPANS), seed=seed, mode="embedded", turns=40)
