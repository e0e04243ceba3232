"""kill -9 of a runner at every named place. A process that lives ends its turn, another runner goes on (G3, G4, G7)."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from scripts.servers import Postgres
from tests.faults import measures
from tests.faults.checkpoints import CHECKPOINTS, NEVER_BEGAN, OFTEN, PLAN, expected_status
from tests.faults.cluster import DEFAULT_LEASE, LEASE, REAPED, TTL
from tests.faults.conftest import MakeSite
from tests.support import PATIENCE, eventually_sync, with_room
from turns.conf import TurnsSettings

SAME_HOST = with_room(3.0)  # seconds from the death of a process to the end of its turns
OTHER_HOST = with_room(18.0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "places", [OFTEN, pytest.param(CHECKPOINTS, marks=pytest.mark.long)], ids=["often", "all"]
)
def test_g03_g04_g07_after_a_kill_at_any_place_a_web_process_ends_the_turn(
    scaled: MakeSite, places: Sequence[str]
):
    site = scaled()
    site.serve(role="web")
    runner = site.run_turns()
    client = site.client()
    for place in places:
        conversation = client.converse()
        site.arm("runner", place)
        turn_id = client.say(conversation, PLAN)
        assert runner.wait(within=PATIENCE) == -9, place
        died_at = time.monotonic()
        if place not in NEVER_BEGAN:
            turn = client.until_ended(turn_id, within=SAME_HOST)
            measures.note("G3", f"same host, {place}", time.monotonic() - died_at)
            assert turn["status"] == expected_status(place), place
        runner = site.run_turns()
        assert client.until_ended(turn_id)["status"] == expected_status(place), place
        after = client.say(conversation, 'call affect {"key": "after"}')
        assert client.until_ended(after)["status"] == "completed", place
        assert site.verdict() == [], place


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize(
    ("lease", "ttl", "bound"),
    [(LEASE, TTL, REAPED), (DEFAULT_LEASE, TurnsSettings.LEASE_TTL, OTHER_HOST)],
    ids=["short", "default"],
)
def test_g02_g03_a_runner_that_died_on_another_machine_is_missed_after_its_lease(
    scaled: MakeSite,
    postgres: Postgres,
    lease: dict[str, Any],
    ttl: float,
    bound: float,
    is_cancelled: bool,
):
    site = scaled(**lease)
    site.serve(role="web")
    runner = site.run_turns()
    # Its row says what one of another machine says: nobody here can look for its pid. It says so long
    # before the kill. A sweep may look for the pid of a row that it read a while ago.
    postgres.run(
        "UPDATE turns_process SET host = 'elsewhere', boot_id = 'another', pid_namespace = 'pid:[1]' "
        "WHERE role = 'runner'",
        database=site.database,
    )
    client = site.client()
    conversation = client.converse()
    turn_id = client.say(conversation, 'call affect {"key": "a", "seconds": 60}')
    client.until_running(turn_id, "affect")
    runner.kill()
    died_at = time.monotonic()
    if is_cancelled:
        assert client.cancel(turn_id).is_success
    ended = client.until_ended(turn_id, within=bound)
    passed = time.monotonic() - died_at
    assert ended["status"] in ("interrupted", "cancelled" if is_cancelled else "interrupted")
    promise = "G2" if is_cancelled else "G3"
    measures.note(promise, f"owner died on another machine, lease of {ttl:g} s", passed)
    assert passed > ttl / 2  # it was the lease that ran out: nothing else could tell
    site.run_turns()
    after = client.say(conversation, 'call affect {"key": "b"}')
    assert client.until_ended(after)["status"] == "completed"
    assert site.verdict() == []


@pytest.mark.timeout(600)
def test_acceptance_93_a_cancel_whose_runner_dies_before_it_obeys_is_on_record(scaled: MakeSite):
    site = scaled(TURNS_POLL_INTERVAL=30.0)
    site.serve(role="web")
    runner = site.run_turns()
    client = site.client()
    turn_id = client.say(client.converse(), 'call swallow {"key": "a", "seconds": 60}')
    client.until_running(turn_id, "swallow")
    eventually_sync(lambda: site.effects())  # the start is on record before the body begins
    runner.freeze()
    assert client.cancel(turn_id, reason="wrong file").is_success
    runner.kill()
    turn = client.until_ended(turn_id, within=SAME_HOST)
    assert turn["status"] in ("interrupted", "cancelled")
    [request] = site.record().requests
    assert (request["by_name"], request["source"], request["reason"], request["note"]) == (
        "ada",
        "api",
        "user",
        "wrong file",
    )
    assert request["running_tools"] == ["swallow"]
    assert request["settled_at"] is not None
    assert site.verdict() == []
    site.run_turns()
    site.until_settled(within=PATIENCE)
    assert [effect.split()[0] for effect in site.effects()] == ["a"]  # 94b: nothing was resumed
