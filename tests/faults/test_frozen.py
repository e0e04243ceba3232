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
    ended = client.until_ended(turn_id, within=reaped)
    assert (ended["status"], ended["error_code"]) == ("interrupted", "lease_lost")
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
def test_g05_a_process_that_stood_still_alone_keeps_its_turns(embedded: MakeSite):
    """Nobody else could have taken them, so nothing is lost but time."""
    site = embedded(**LEASE)
    process = site.serve()
    client = site.client()
    conversation = client.converse()
    turn_id = client.say(conversation, 'call affect {"key": "a", "held": true}')
    client.until_running(turn_id, "affect")
    process.freeze()
    let_pass(TTL + 0.5)
    process.thaw()
    eventually_sync(lambda: "was suspended" in process.said, timeout=PATIENCE)
    site.let_go()
    assert client.until_ended(turn_id)["status"] == "completed"
    after = client.say(conversation, 'call affect {"key": "b"}')
    assert client.until_ended(after)["status"] == "completed"
    assert site.verdict() == []


def test_a_tool_that_asks_has_no_effect_after_its_turn_was_lost(scaled: MakeSite):
    site = scaled(**LEASE)
    start_scaled(site, runners=1)
    client = site.client()
    tools = ("ask_first", "ask_first_elsewhere", "ask_first_in_a_thread")
    turns = [client.say(client.converse(), f'call {tool} {{"key": "lost"}}') for tool in tools]
    for turn_id, tool in zip(turns, tools, strict=True):
        client.until_running(turn_id, tool)
    frozen = site.processes["runner0"]
    frozen.freeze()
    for turn_id in turns:
        assert client.until_ended(turn_id, within=REAPED)["status"] == "interrupted"
    site.let_go()
    frozen.thaw()
    eventually_sync(lambda: "registered again" in frozen.said, timeout=PATIENCE)
    for tool in tools:
        turn_id = client.say(client.converse(), f'call {tool} {{"key": "{tool}"}}')
        assert client.until_ended(turn_id)["status"] == "completed"
    assert [effect.split()[0] for effect in site.effects()] == [*tools]
    assert site.verdict() == []
