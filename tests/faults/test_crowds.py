"""A full process, and all its turns cancelled at once. Each call ends as what it is, and nothing fails (C1, C13)."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.client import Client
from tests.faults.conftest import MakeSite

RUNNING = 20
QUEUED = 15

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("mode", ["embedded", "scaled"])
def test_a_full_process_is_cancelled_as_honestly_as_one_turn(
    request: pytest.FixtureRequest, mode: str
):
    make: MakeSite = request.getfixturevalue(mode)
    site = make(TURNS_MAX_LIVE=RUNNING)
    process = site.serve()
    client = site.client()
    turns = [client.say(client.converse(), "wait 600") for _ in range(RUNNING + QUEUED)]
    for turn_id in turns[:RUNNING]:
        client.until_running(turn_id, "wait", within=60)
    with ThreadPoolExecutor(max_workers=15) as load:
        list(load.map(lambda turn_id: cancel(site.client(), turn_id), turns))
    ended = [client.until_ended(turn_id, within=60) for turn_id in turns]
    assert {turn["status"] for turn in ended} == {"cancelled"}
    calls = [call for turn in ended for call in turn["calls"]]
    facts = Counter((call["status"], call["disposition"]) for call in calls)
    assert facts.keys() <= {("cancelled", "settled"), ("not_started", "not_started")}, facts
    assert facts["cancelled", "settled"] >= RUNNING
    assert "Traceback" not in process.said
    assert site.verdict() == []


def cancel(client: Client, turn_id: str) -> None:
    answer = client.cancel(turn_id)
    assert answer.status_code in (200, 202, 404), answer.text
