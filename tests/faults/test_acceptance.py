"""Acceptance behaviours that need real processes, the same in both modes, through HTTP and WebSocket."""

import pytest

from tests.faults.conftest import MakeSite
from tests.faults.fleet import start_scaled
from tests.faults.processes import owned_by
from tests.faults.site import Site
from tests.support import eventually_sync

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(params=["embedded", "scaled"])
def site(request: pytest.FixtureRequest) -> Site:
    """Start a site in each mode."""
    make: MakeSite = request.getfixturevalue(request.param)
    made = make()
    if request.param == "embedded":
        made.serve()
    else:
        start_scaled(made, runners=1)
    return made


def test_acceptance_40_49_54_55_92_as_people_see_them(site: Site):
    acceptance_49_what_was_put_in_the_background_survives_a_cancel(site)
    acceptance_40_92_a_cancel_is_on_record_with_all_that_belongs_to_it(site)
    acceptance_54_who_leaves_for_good_ends_the_turn_and_who_comes_back_does_not(site)
    assert site.verdict(cancel_within=3.0) == []


def acceptance_49_what_was_put_in_the_background_survives_a_cancel(site: Site) -> None:
    client = site.client()
    turn_id = client.say(
        client.converse(),
        "run setsid sleep 305 >/dev/null 2>&1 & sleep 306 >/dev/null 2>&1 & touch begun; sleep 307",
    )
    client.approve(turn_id)
    eventually_sync(lambda: [*site.var.glob("workspaces/*/begun")], timeout=15)
    assert client.cancel(turn_id).is_success
    assert client.until_ended(turn_id)["status"] == "cancelled"
    eventually_sync(lambda: sleepers(site) == ["305"])


def sleepers(site: Site) -> list[str]:
    """Return how long the sleeping processes of a site sleep."""
    commands = []
    for pid in owned_by(site.var):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                commands.append(file.read().rstrip("\0").split("\0"))
        except OSError:
            continue
    return sorted(command[-1] for command in commands if command[0] == "sleep")


def acceptance_40_92_a_cancel_is_on_record_with_all_that_belongs_to_it(site: Site) -> None:
    client = site.client()
    turn_id = client.say(
        client.converse(),
        'call affect {"key": "done"}\ncall affect {"key": "held", "seconds": 60}\n'
        'call swallow {"key": "deaf", "seconds": 5}',
    )
    client.until_running(turn_id, "affect", "swallow")
    eventually_sync(lambda: "succeeded" in statuses(client.turn(turn_id)))
    assert client.cancel(turn_id, reason="not what I meant").is_success
    turn = client.until_ended(turn_id)
    assert turn["status"] == "cancelled"
    assert statuses(turn) == ["abandoned", "cancelled", "succeeded"]
    record = site.record()
    [request] = [row for row in record.requests if str(row["turn_id"]) == turn_id]
    assert request["by_name"] == "ada"
    assert (request["source"], request["reason"], request["note"]) == (
        "api",
        "user",
        "not what I meant",
    )
    assert sorted(request["running_tools"]) == ["affect", "swallow"]
    assert request["settled_at"] > request["requested_at"]
    assert request["outcome"] == "cancelled"
    dispositions = {call["input"]["key"]: call["disposition"] for call in record.calls_of(turn_id)}
    assert dispositions == {"done": "settled", "held": "settled", "deaf": "indeterminate"}
    assert all(call["timeout_ms"] is not None for call in record.calls_of(turn_id))


def statuses(turn: dict) -> list[str]:
    return sorted(call["status"] for call in turn["calls"])


def acceptance_54_who_leaves_for_good_ends_the_turn_and_who_comes_back_does_not(site: Site) -> None:
    client = site.client()
    site.set_policy(policy="cancel_after_grace", grace_ms=1500)
    conversation = client.converse()
    first, second = site.watch(conversation), site.watch(conversation)
    turn_id = client.say(conversation, 'call affect {"key": "watched", "seconds": 60}')
    client.until_running(turn_id, "affect")
    second.leave()  # one of two tabs
    first.cut()  # the network; it comes back by itself
    eventually_sync(lambda: len(first.close_codes) + first.welcomes > 1)
    third = site.watch(conversation)
    assert client.is_running(turn_id, "affect")
    first.leave()
    third.leave()
    turn = client.until_ended(turn_id, within=15)
    assert (turn["status"], turn["ended_by"]["reason"]) == ("cancelled", "disconnect")
