"""SIGSTOP, longer than a lease lasts, then SIGCONT: who has lost a turn changes nothing of it any more (G5)."""

import time
from typing import Any

import pytest

from tests.faults import measures
from tests.faults.cluster import (
    DEFAULT_LEASE,
    LEASE,
    REAPED,
    TTL,
    let_pass,
    other_runner,
    start_scaled,
)
from tests.faults.conftest import MakeSite
from tests.support import PATIENCE, eventually_sync, with_room
from turns.conf import TurnsSettings

pytestmark = pytest.mark.timeout(600)


@pytest.mark.long
@pytest.mark.parametrize(
    ("lease", "ttl", "reaped"),
    [
        (LEASE, TTL, REAPED),
        (DEFAULT_LEASE, TurnsSettings.LEASE_TTL, with_room(TurnsSettings.LEASE_TTL + 3.0)),
    ],
    ids=["short", "default"],
)
def test_g03_g05_a_runner_that_was_frozen_has_lost_its_turn_and_leaves_it_alone(
    scaled: MakeSite, lease: dict[str, Any], ttl: float, reaped: float
):
    site = scaled(**lease)
    start_scaled(site)
    client = site.client()
    conversation = client.converse()
    turn_id = client.say(conversation, f'call affect {{"key": "a", "seconds": {ttl + 1}}}')
    client.until_running(turn_id, "affect")
    frozen = site.owner_of(turn_id)
    frozen.freeze()
    stopped_at = time.monotonic()
    assert client.until_ended(turn_id, within=reaped)["status"] == "interrupted"
    measures.note("G3", f"frozen owner, lease of {ttl:g} s", time.monotonic() - stopped_at)
    after = client.say(conversation, 'call affect {"key": "b"}')
    assert client.until_ended(after)["status"] == "completed"
    assert site.owner_of(after) is other_runner(site, frozen)
    let_pass(ttl + 1.5, since=stopped_at)  # until its tool would have ended
    before = site.record()
    frozen.thaw()
    eventually_sync(lambda: "registered again" in frozen.said, timeout=PATIENCE)
    now = site.record()
    assert (now.turns, now.events, now.calls) == (before.turns, before.events, before.calls)
    other_runner(site, frozen).kill()
    last = client.say(conversation, 'call affect {"key": "c"}')
    assert client.until_ended(last)["status"] == "completed"
    assert site.owner_of(last) is frozen
    assert site.verdict() == []


@pytest.mark.parametrize(
    "place",
    [
        "in_end",
        pytest.param("before_result", marks=pytest.mark.long),
        pytest.param("before_end", marks=pytest.mark.long),
        pytest.param("before_call_start", marks=pytest.mark.long),
    ],
)
def test_g05_a_write_that_comes_after_the_lease_is_refused(scaled: MakeSite, place: str):
    site = scaled(**{**LEASE, "TURNS_LEASE_FENCE_AFTER": 4.5, "TURNS_LEASE_TTL": 5.5})
    start_scaled(site, runners=1)
    site.arm("runner0", f"{place}:stop")
    client = site.client()
    conversation = client.converse()
    turn_id = client.say(conversation, 'call affect {"key": "a"}')
    frozen = site.processes["runner0"]
    eventually_sync(lambda: frozen.is_frozen, timeout=PATIENCE)
    site.run_turns("runner1")
    assert client.until_ended(turn_id, within=REAPED)["status"] == "interrupted"
    assert client.until_ended(client.say(conversation, "help"))["status"] == "completed"
    before = site.record()
    frozen.thaw()
    eventually_sync(lambda: "registered again" in frozen.said, timeout=PATIENCE)
    now = site.record()
    assert (now.turns, now.events, now.calls) == (before.turns, before.events, before.calls)
    assert site.verdict() == []


@pytest.mark.long
def test_g05_a_process_that_was_frozen_for_less_than_its_lease_goes_on(scaled: MakeSite):
    site = scaled(**LEASE)
    start_scaled(site, runners=1)
    client = site.client()
    turn_id = client.say(client.converse(), 'call affect {"key": "a", "held": true}')
    client.until_running(turn_id, "affect")
    frozen = site.owner_of(turn_id)
    frozen.freeze()
    let_pass(TTL / 4)
    frozen.thaw()
    site.let_go()
    assert client.until_ended(turn_id)["status"] == "completed"
    assert site.verdict() == []


@pytest.mark.long
def test_g05_the_one_process_of_embedded_mode_fences_itself_when_it_goes_on(embedded: MakeSite):
    site = embedded(**LEASE)
    process = site.serve()
    client = site.client()
    conversation = client.converse()
    turn_id = client.say(conversation, 'call affect {"key": "a", "seconds": 60}')
    client.until_running(turn_id, "affect")
    process.freeze()
    let_pass(TTL + 0.5)
    process.thaw()
    assert client.until_ended(turn_id)["status"] == "interrupted"
    after = client.say(conversation, 'call affect {"key": "b"}')
    assert client.until_ended(after)["status"] == "completed"
    assert site.verdict() == []
