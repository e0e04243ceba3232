"""Acceptance behaviours that need real processes, the same in both modes, through HTTP, WebSocket and admin.

One site for each mode does for all of them. So what needs two web processes and two runners is here too (C10, C11, P4).
docs/requirements.md says which behaviour is shown where.
"""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.faults.bounds import BUSY, CANCEL_BY_POLL
from tests.faults.checker import view_violations
from tests.faults.client import Client, WebSocketClient
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.processes import owned_by
from tests.support import PATIENCE, eventually_sync

SLOWLY = "slowly " + " ".join(f"word{number}" for number in range(400))
COMPLETED = r'^turnkeeper_turns_total\{status="completed"\} (\S+)$'
HELD = 'call affect {"key": "held", "seconds": 600}'
IDLE_MS = 10_000  # a starved runner may say nothing for some seconds

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=["embedded", "scaled"])
def started(request: pytest.FixtureRequest) -> Site:
    """Start one process that does everything, or two web processes and two runners."""
    make: MakeSite = request.getfixturevalue(f"shared_{request.param}")
    site = make(GOVERNANCE_PROGRESS_INTERVAL=0.2)
    if request.param == "embedded":
        site.serve()
    else:
        for name in ("runner0", "runner1"):
            site.run_turns(name, "--concurrency", "1", "--metrics-port", str(site.port(name)))
        for name in ("web", "web1"):
            site.serve(name, role="web")
    return site


@pytest.fixture
def site(started: Site) -> Iterator[Site]:
    """Return the site with the policy that is the default; what a test does there leaves a history without fault."""
    started.set_policy(policy="cancel_after_grace", grace_ms=30_000, unattended_limit_ms=3_600_000)
    began_at = datetime.now(UTC)
    yield started
    verdict = started.verdict(cancel_within=CANCEL_BY_POLL + BUSY, cancelled_since=began_at)
    for turn_id in started.active_turns():  # of a test that has failed: the next one needs the room
        started.client().cancel(str(turn_id))
    started.until_settled(within=PATIENCE)
    assert verdict == []


def elsewhere(site: Site) -> str:
    """Return the web process that is farthest from `web`."""
    return "web1" if "web1" in site.processes else "web"


def last_seq(site: Site, conversation: str) -> int:
    [row] = [row for row in site.record().conversations if str(row["id"]) == conversation]
    return int(row["last_seq"])


def assert_saw_all(
    site: Site, watcher: WebSocketClient, conversation: str, *, after: int = 0
) -> None:
    """Each event after this one, once and in order."""
    last = last_seq(site, conversation)
    eventually_sync(lambda: watcher.last_seq == last, timeout=PATIENCE)
    events = watcher.events()
    assert [event["seq"] for event in events] == [*range(after + 1, last + 1)]
    assert view_violations(events, site.record()) == []


def test_acceptance_40_92_a_cancel_is_on_record_with_all_that_belongs_to_it(site: Site):
    client = site.client()
    turn_id = client.say(
        client.converse(),
        'call affect {"key": "done"}\ncall affect {"key": "held", "seconds": 60}\n'
        'call swallow {"key": "deaf", "seconds": 30}',
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


def test_acceptance_49_what_was_put_in_the_background_survives_a_cancel(site: Site):
    client = site.client()
    turn_id = client.say(
        client.converse(),
        "run setsid sleep 305 >/dev/null 2>&1 & sleep 306 >/dev/null 2>&1 & sleep 307",
    )
    client.approve(turn_id)
    eventually_sync(lambda: sleepers(site) == ["305", "306", "307"])  # 305 by itself
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


def test_acceptance_51_who_comes_back_in_the_middle_sees_every_event_once_and_in_order(site: Site):
    client = site.client()
    conversation = client.converse()
    cut_off = site.watch(conversation, "web", elsewhere(site))
    turn_id = client.say(conversation, "slowly one two three four\nrun true")
    cut_off.until("text_delta", turn_id=turn_id)
    cut_off.cut()  # as a network does: it goes on where it was
    reloaded = site.watch(conversation, elsewhere(site))  # as a page does: it has nothing
    snapshot = reloaded.until("snapshot")
    assert [turn["turn_id"] for turn in snapshot["active_turns"]] == [turn_id]
    client.approve(turn_id)
    for watcher in (cut_off, reloaded):
        watcher.until("turn_end", turn_id=turn_id, status="completed")
    assert_saw_all(site, cut_off, conversation)
    assert_saw_all(site, reloaded, conversation, after=snapshot["seq"])
    assert cut_off.welcomes == 2


def test_acceptance_52_a_gap_is_told_and_filled_as_a_whole(site: Site):
    client = site.client()
    conversation = client.converse()
    watcher = site.watch(conversation)
    turn_id = client.say(conversation, SLOWLY)
    second = eventually_sync(lambda: [f for f in watcher.frames if f.get("offset")])[0]
    watcher.frames.remove(second)  # a piece of text that never came
    watcher.send(type="resync", turn_id=turn_id)
    whole = eventually_sync(
        lambda: [f for f in watcher.frames if f.get("offset") == 0 and second["text"] in f["text"]]
    )

    watcher.last_seq += 1_000  # an event that the log does not have, as after a restored backup
    watcher.cut()
    again = eventually_sync(lambda: [f for f in watcher.frames if f["type"] == "snapshot"][1:])
    assert again[0]["seq"] == watcher.last_seq
    assert [turn["turn_id"] for turn in again[0]["active_turns"]] == [turn_id]
    assert client.cancel(turn_id).is_success
    watcher.until("turn_end", turn_id=turn_id)
    said = watcher.until("message", turn_id=turn_id, role="assistant")["content"][0]["text"]
    assert said.startswith(whole[0]["text"])


def test_acceptance_53_the_answer_of_a_turn_that_ends_unseen_is_there_at_the_next_visit(site: Site):
    client = site.client()
    conversation = client.converse()
    watcher = site.watch(conversation)
    turn_id = client.say(conversation, "slowly one two three four five six seven")
    watcher.until("text_delta", turn_id=turn_id)
    watcher.leave()
    assert client.until_ended(turn_id)["status"] == "completed"
    snapshot = site.watch(conversation, elsewhere(site)).until("snapshot")
    assert snapshot["active_turns"] == []
    assert snapshot["seq"] == last_seq(site, conversation)
    assert "six seven" in snapshot["messages"][-1]["content"][0]["text"]


def test_acceptance_54_55_who_leaves_for_good_ends_the_turn_and_who_comes_back_does_not(site: Site):
    client = site.client()
    conversation = client.converse()
    first, second = site.watch(conversation), site.watch(conversation, elsewhere(site))
    turn_id = client.say(conversation, HELD)
    client.until_running(turn_id, "affect")
    second.leave()  # one of two tabs
    first.cut()  # the network; it comes back by itself
    eventually_sync(lambda: len(first.close_codes) + first.welcomes > 1)
    third = site.watch(conversation)
    assert client.is_running(turn_id, "affect")
    site.set_policy(policy="cancel_after_grace", grace_ms=1500)
    first.leave()
    third.leave()
    turn = client.until_ended(turn_id, within=PATIENCE)
    assert (turn["status"], turn["ended_by"]["reason"]) == ("cancelled", "disconnect")


def test_acceptance_56_a_turn_that_nobody_watches_can_be_cancelled(site: Site):
    site.set_policy(policy="detach")
    client = site.client(elsewhere(site))
    conversation = client.converse()
    watcher = site.watch(conversation)
    turn_id = client.say(conversation, HELD)
    client.until_running(turn_id, "affect")
    watcher.leave()
    eventually_sync(lambda: is_unattended(site, conversation))
    assert client.is_running(turn_id, "affect")
    assert client.cancel(turn_id).is_success
    turn = client.until_ended(turn_id)
    assert (turn["status"], turn["ended_by"]["reason"]) == ("cancelled", "user")


def is_unattended(site: Site, conversation: str) -> bool:
    rows = {str(row["id"]): row for row in site.record().conversations}
    return rows[conversation]["unattended_since"] is not None


def test_acceptance_94_a_limit_that_was_edited_counts_at_once_and_the_edit_is_on_record(site: Site):
    client = site.client()
    turn_id = client.say(client.converse(), 'call chatter {"kilobytes": 0, "times": 6000}')
    client.until_running(turn_id, "chatter")
    administrator = site.administrator(elsewhere(site))
    administrator.limit("chatter", timeout_ms="2 s")
    assert client.until_ended(turn_id)["status"] == "completed"
    [call] = client.turn(turn_id)["calls"]
    assert (call["status"], call["timeout_ms"]) == ("timed_out", 2_000)
    log = administrator.read("/admin/governance/policychange/", q="chatter")
    assert "total limit: not set → 2 s" in log
    assert "root" in log


@pytest.mark.parametrize("started", ["scaled"], indirect=True)
def test_c11_a_viewer_of_any_process_keeps_a_turn_and_the_last_one_leaves_it_to_the_policy(
    site: Site,
):
    site.set_policy(policy="cancel_after_grace", grace_ms=500)
    client = site.client()
    kept, left = client.converse(), client.converse()
    tabs = {
        (conversation, name): site.watch(conversation, name)
        for conversation in (kept, left)
        for name in ("web", "web1")
    }
    turns = {conversation: client.say(conversation, HELD) for conversation in (kept, left)}
    for turn_id in turns.values():
        client.until_running(turn_id, "affect")
    for place in ((kept, "web"), (left, "web"), (left, "web1")):
        tabs[place].leave()
    turn = client.until_ended(turns[left])
    assert (turn["status"], turn["ended_by"]["reason"]) == ("cancelled", "disconnect")
    assert client.is_running(turns[kept], "affect")
    assert not is_unattended(site, kept)

    site.set_policy(policy="detach", grace_ms=500, unattended_limit_ms=1_000)
    left_at = time.monotonic()
    tabs[kept, "web1"].leave()
    turn = client.until_ended(turns[kept])
    assert (turn["status"], turn["ended_by"]["reason"]) == ("cancelled", "disconnect")
    assert time.monotonic() - left_at >= 1.0


@pytest.mark.parametrize("started", ["scaled"], indirect=True)
def test_c10_t6_a_sub_agent_in_another_process_keeps_its_call_alive_and_ends_with_it(site: Site):
    site.administrator().limit("sessions_ask", idle_timeout_ms=f"{IDLE_MS} ms")
    client = site.client()
    message = json.dumps({"agent": "", "message": HELD})
    # What else it does takes the room in its runner, so the sub-agent is left to the other one.
    turn_id = client.say(client.converse(), f"call sessions_ask {message}\n{HELD}")
    client.until_running(turn_id, "sessions_ask", "affect")
    child_id = eventually_sync(lambda: child_of(site, turn_id))
    client.until_running(child_id, "affect")
    assert site.owner_of(child_id) is not site.owner_of(turn_id)

    eventually_sync(lambda: idle_limit_of_asking(site, turn_id) == IDLE_MS)  # its runner polls
    limited_at = asking(client, turn_id)["elapsed_ms"]
    eventually_sync(lambda: asking(client, turn_id)["elapsed_ms"] > limited_at + 1.25 * IDLE_MS)
    assert asking(client, turn_id)["status"] == "running"

    assert client.cancel(turn_id).is_success
    assert client.until_ended(turn_id)["status"] == "cancelled"
    child = client.until_ended(child_id)
    assert (child["status"], child["ended_by"]["reason"]) == ("cancelled", "parent")


def child_of(site: Site, turn_id: str) -> str:
    turns = site.record().turns
    return next((str(turn["id"]) for turn in turns if str(turn["parent_id"]) == turn_id), "")


def idle_limit_of_asking(site: Site, turn_id: str) -> int:
    calls = site.record().calls_of(turn_id)
    return int(next(row["idle_timeout_ms"] for row in calls if row["tool_name"] == "sessions_ask"))


def asking(client: Client, turn_id: str) -> dict[str, Any]:
    calls = client.turn(turn_id)["calls"]
    return next(call for call in calls if call["tool_name"] == "sessions_ask")


@pytest.mark.parametrize("started", ["scaled"], indirect=True)
def test_b7_a_runner_answers_prometheus(site: Site):
    client = site.client()
    turn_id = client.say(client.converse(), "help")
    assert client.until_ended(turn_id)["status"] == "completed"
    runner = site.owner_of(turn_id)
    address = f"{site.url(runner.name)}/metrics"
    assert f"Metrics on {address}" in runner.said

    def completed() -> float:
        numbers = httpx.get(address, trust_env=False, timeout=PATIENCE).text
        [counted] = re.findall(COMPLETED, numbers, re.M)
        return float(counted)

    eventually_sync(lambda: completed() >= 1)


@pytest.mark.parametrize("started", ["scaled"], indirect=True)
def test_p4_a_full_runner_leaves_what_comes_on_top_to_others_and_takes_it_when_it_has_room(
    site: Site,
):
    client = site.client()
    turns = [client.say(client.converse(), HELD) for _ in range(3)]

    def running() -> list[str]:
        return [turn_id for turn_id in turns if client.is_running(turn_id, "affect")]

    first = eventually_sync(
        lambda: found if len(found := running()) == 2 else None, timeout=PATIENCE
    )
    assert site.owner_of(first[0]) is not site.owner_of(first[1])
    [waiting] = set(turns) - set(first)
    assert client.turn(waiting)["status"] == "queued"
    client.cancel(first[0])
    client.until_running(waiting, "affect")
    for turn_id in (first[1], waiting):
        client.cancel(turn_id)
    site.until_settled(within=PATIENCE)
