"""The cancel of a turn with sub-agents at work costs what the turns of the family cost (C1, C10). All end as what they are."""

import json
from statistics import median

import pytest

from tests.faults import measures
from tests.faults.client import Client
from tests.faults.cluster import start_scaled
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.support import PATIENCE, eventually_sync, with_room

ROUNDS = 5
CHILDREN = 3
HELD = 'call affect {"key": "held", "seconds": 600}'
ASKED = f"call sessions_ask {json.dumps({'agent': '', 'message': HELD})}"
PROMISED = 1.0  # seconds
SHARE = 2.0  # of a plain turn's time for each turn: they are asked in one go, and end one after the other

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("mode", ["embedded", "scaled"])
def test_a_turn_with_three_sub_agents_is_cancelled_in_the_time_of_four_turns(
    request: pytest.FixtureRequest, mode: str
):
    make: MakeSite = request.getfixturevalue(mode)
    site = make()
    if mode == "embedded":
        site.serve()
    else:
        start_scaled(site)
    client = site.client()
    plain, families = [], []
    for _ in range(ROUNDS):  # side by side, so that a busy machine slows both down
        plain.append(seconds_of_cancel(site, begin(client, HELD)))
        family = begin(client, "\n".join([ASKED] * CHILDREN))
        families.append(seconds_of_cancel(site, family, children=CHILDREN))
    fast, slow = median(plain), median(families)
    measures.note("C1", f"cancel of a plain turn, {mode}", fast)
    measures.note("C1", f"cancel of a turn with three sub-agents, {mode}", slow)
    assert slow <= with_room(PROMISED), families
    assert slow <= max(PROMISED, (1 + CHILDREN) * SHARE * fast), (plain, families)
    assert site.verdict() == []


def begin(client: Client, text: str) -> str:
    return client.say(client.converse(), text)


def seconds_of_cancel(site: Site, turn_id: str, *, children: int = 0) -> float:
    """Cancel a turn when all is at work. Return how long all of it took to end, by the database's clock."""
    client = site.client()
    eventually_sync(lambda: holding(site, turn_id) == max(children, 1), timeout=PATIENCE)
    assert client.cancel(turn_id).is_success
    family = [turn_id, *children_of(site, turn_id)]
    for member in family:
        turn = client.until_ended(member)
        assert turn["status"] == "cancelled"
        assert {call["status"] for call in turn["calls"]} == {"cancelled"}, turn["calls"]
        assert {call["disposition"] for call in turn["calls"]} == {"settled"}, turn["calls"]
    assert len(family) == 1 + children
    record = site.record()
    asked_at = next(
        row["requested_at"] for row in record.requests if str(row["turn_id"]) == turn_id
    )
    ended_at = max(record.turn(member)["ended_at"] for member in family)
    return float((ended_at - asked_at).total_seconds())


def holding(site: Site, turn_id: str) -> int:
    """Return how many turns of a family have a tool at work that obeys a cancel."""
    record = site.record()
    calls = [
        call
        for member in [turn_id, *children_of(site, turn_id)]
        for call in record.calls_of(member)
    ]
    return sum((call["tool_name"], call["status"]) == ("affect", "running") for call in calls)


def children_of(site: Site, turn_id: str) -> list[str]:
    return [str(row["id"]) for row in site.record().turns if str(row["parent_id"]) == turn_id]
