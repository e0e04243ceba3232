"""kill -9 of the one process of embedded mode, at every named place; then its successor starts (G3, G4, G7)."""

import time
from collections.abc import Sequence

import pytest

from tests.faults import measures
from tests.faults.checkpoints import CHECKPOINTS, OFTEN, PLAN, expected_status
from tests.faults.conftest import MakeSite
from tests.support import PATIENCE, eventually_sync, with_room

# From the first answer of the successor to the end of what was interrupted.
RESTART_BOUND = with_room(3.0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "places",
    [OFTEN, pytest.param(("after_enqueue", *CHECKPOINTS), marks=pytest.mark.long)],
    ids=["often", "all"],
)
def test_g03_g04_g07_after_a_kill_at_any_place_the_successor_ends_the_turn(
    embedded: MakeSite, places: Sequence[str]
):
    site = embedded()
    process = site.serve()
    for place in places:
        client = site.client()
        conversation = client.converse()
        site.arm("web", place)
        client.say_to_the_dying(conversation, PLAN, client_id="first")
        assert process.wait(within=PATIENCE) == -9, place
        process = site.serve()
        ready_at = time.monotonic()
        client = site.client()
        turn = client.until_ended(client.say(conversation, PLAN, client_id="first"))
        passed = time.monotonic() - ready_at
        measures.note("G3", f"restart, {place}", passed)
        assert passed < RESTART_BOUND, place
        # The one process claims a turn in the transaction that takes its message.
        claimed = "after_claim" if place == "after_enqueue" else place
        assert turn["status"] == expected_status(claimed), place
        after = client.say(conversation, 'call affect {"key": "after"}')
        assert client.until_ended(after)["status"] == "completed", place
        assert site.verdict() == [], place


@pytest.mark.timeout(600)
def test_under_plain_daphne_a_turn_that_was_cut_off_ends_soon_after_the_next_start_without_a_message(
    embedded: MakeSite,
):
    site = embedded()
    process = site.serve_daphne()
    client = site.client()
    turn_id = client.say(client.converse(), 'call affect {"key": "a", "seconds": 60}')
    client.until_running(turn_id, "affect")
    process.kill()
    site.serve_daphne()
    site.until_settled(within=RESTART_BOUND)
    assert site.record().turn(turn_id)["status"] == "interrupted"
    assert site.verdict() == []


@pytest.mark.timeout(600)
def test_g01_a_cancel_that_was_stored_takes_effect_although_its_process_dies(embedded: MakeSite):
    site = embedded()
    process = site.serve()
    client = site.client()
    conversation = client.converse()
    first = client.say(conversation, 'call affect {"key": "a", "seconds": 60}')
    behind = client.say(conversation, 'call affect {"key": "behind"}')
    client.until_running(first, "affect")
    eventually_sync(lambda: site.effects())  # the start is on record before the body begins
    site.arm("web", "after_cancel_stored")
    client.cancel_with_the_dying(first)
    assert process.wait(within=PATIENCE) == -9
    site.serve()
    client = site.client()
    turn = client.until_ended(first)
    assert turn["status"] in {"interrupted", "cancelled"}
    assert client.until_ended(behind)["status"] == "cancelled"
    assert [effect.split()[0] for effect in site.effects()] == ["a"]
    [request] = site.record().requests
    assert (request["by_name"], request["source"], request["running_tools"]) == (
        "ada",
        "api",
        ["affect"],
    )
    assert request["settled_at"] is not None
    assert site.verdict() == []
