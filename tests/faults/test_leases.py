"""Owners that die, hang, come back or lose their database. Their turns end once, and they write nothing more (G3, G5, G11)."""

import signal
from datetime import timedelta
from typing import Any

import pytest

from scripts.servers import Postgres
from tests.faults.client import Client
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.processes import Process, deaf
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync, with_room

# Short enough to wait for, and longer than a busy machine usually stands still.
FENCE_AFTER, TTL = 4.5, 5.5
QUICK_LEASE: dict[str, Any] = {
    "TURNS_LEASE_RENEW_INTERVAL": 1.0,
    "TURNS_LEASE_FENCE_AFTER": FENCE_AFTER,
    "TURNS_LEASE_TTL": TTL,
    "TURNS_SWEEP_INTERVAL": 0.3,
}
REAP_BOUND = TTL + 0.3 * 1.2 + PATIENCE  # lease, sweep, a busy machine
WORK = 'call affect {"key": "a", "seconds": 300}\ncall ignore {"key": "deaf", "seconds": 300}'

pytestmark = pytest.mark.timeout(600)


def start_two(site: Site) -> None:
    """Start two processes that serve and run turns on one database."""
    site.serve_uvicorn("one")
    site.serve_uvicorn("two")


def begin(site: Site) -> tuple[str, str]:
    """Let a turn with a call in the process and one in a worker run. Return the conversation and the turn."""
    client = site.client("one")
    conversation = client.converse()
    turn = client.say(conversation, WORK)
    client.until_running(turn, "affect", "ignore")
    eventually_sync(lambda: deaf(site.var), timeout=LONG_PATIENCE)  # a worker has to start
    return conversation, turn


def sides(site: Site, turn: str) -> tuple[Process, Client]:
    """Return the owner of a turn, who is the one that was faster, and a client of the other process."""
    owner = site.owner_of(turn)
    [other] = (name for name, process in site.processes.items() if process is not owner)
    return owner, site.client(other)


@pytest.fixture(params=["embedded", "scaled"])
def site(request: pytest.FixtureRequest) -> Site:
    """Return a site on SQLite, or on PostgreSQL, whose leases are short."""
    make: MakeSite = request.getfixturevalue(request.param)
    return make(**QUICK_LEASE)


def test_g05_a_process_that_stood_still_too_long_writes_nothing_more_and_comes_back(site: Site):
    start_two(site)
    conversation, turn = begin(site)
    frozen, client = sides(site, turn)
    assert deaf(site.var)
    site.freeze(frozen)
    reaped = client.until_ended(turn, within=REAP_BOUND)
    assert (reaped["status"], reaped["error_code"]) == ("interrupted", "lease_lost")
    assert all("did not report for too long" in told for told in results(client, turn))
    following = client.say(conversation, 'call affect {"key": "next"}')
    assert client.until_ended(following)["status"] == "completed"
    seen = client.events(turn)
    frozen.thaw()
    eventually_sync(lambda: "registered again" in frozen.said, timeout=PATIENCE)
    eventually_sync(lambda: not deaf(site.var), timeout=PATIENCE)
    assert client.events(turn) == seen
    assert client.turn(turn) == reaped

    def rows() -> list[bool]:
        return [not row["ended_at"] for row in site.record().processes if row["pid"] == frozen.pid]

    # On a starved machine so short a lease may run out once more, which makes another row.
    eventually_sync(lambda: len(rows()) >= 2 and sum(rows()) == 1)
    again = site.client(frozen.name)
    turn = again.say(again.converse(), 'call affect {"key": "again"}')
    assert again.until_ended(turn)["status"] == "completed"
    assert site.verdict() == []


def test_g03_a_process_that_was_killed_on_this_host_is_found_by_the_next_sweep(
    embedded: MakeSite,
):
    site = embedded()  # whose leases are long: it is not they that run out
    start_two(site)
    _conversation, turn = begin(site)
    killed, client = sides(site, turn)
    killed.kill()
    assert client.until_ended(turn, within=PATIENCE)["status"] == "interrupted"
    assert site.verdict() == []


def test_g03_a_process_of_another_host_is_found_by_its_lease(scaled: MakeSite, postgres: Postgres):
    site = scaled(**QUICK_LEASE)
    start_two(site)
    # Long before the kill: a sweep that has read a row of this host may look for its pid later.
    postgres.run(
        "UPDATE turns_process SET boot_id = 'there', host = 'elsewhere', pid_namespace = 'pid:[1]'",
        database=site.database,
    )
    conversation, turn = begin(site)
    killed, client = sides(site, turn)
    killed.kill()
    seen_at = max(row["seen_at"] for row in site.record().processes if row["pid"] == killed.pid)
    assert client.until_ended(turn, within=REAP_BOUND)["status"] == "interrupted"
    silent = site.record().turn(turn)["ended_at"] - seen_at
    assert silent > timedelta(seconds=FENCE_AFTER)  # not by its pid, which tells nothing there
    following = client.say(conversation, 'call affect {"key": "next"}')
    assert client.until_ended(following)["status"] == "completed"
    assert site.verdict() == []


def test_g03_a_process_whose_loop_is_blocked_loses_its_lease(scaled: MakeSite):
    site = scaled(**QUICK_LEASE)
    start_two(site)
    client = site.client("one")
    conversation = client.converse()
    client.say_unanswered(conversation, 'call block {"key": "a", "held": true}')
    [effect] = eventually_sync(lambda: site.effects())
    turn = effect.split()[1]
    blocked, client = sides(site, turn)
    assert client.until_ended(turn, within=REAP_BOUND)["status"] == "interrupted"
    eventually_sync(lambda: "The event loop has been held up" in blocked.said)
    eventually_sync(lambda: "in block" in blocked.said)  # the stack names the tool
    following = client.say(conversation, 'call affect {"key": "next"}')
    assert client.until_ended(following)["status"] == "completed"
    site.let_go()
    eventually_sync(lambda: "registered again" in blocked.said, timeout=PATIENCE)
    assert site.verdict() == []


@pytest.mark.parametrize("how", ["silent", pytest.param("stopped", marks=pytest.mark.long)])
def test_g11_a_process_without_its_database_gives_its_turns_up(
    scaled: MakeSite, postgres: Postgres, how: str
):
    site = scaled(**QUICK_LEASE)
    process = site.serve_uvicorn("one")
    conversation, turn = begin(site)
    assert deaf(site.var)
    if how == "stopped":
        postgres.crash()
    else:
        postgres.signal(signal.SIGSTOP)
    eventually_sync(lambda: "The lease is lost" in process.said, timeout=FENCE_AFTER + PATIENCE)
    eventually_sync(lambda: not deaf(site.var), timeout=PATIENCE)
    if how == "stopped":
        postgres.start()
    else:
        postgres.signal(signal.SIGCONT)
    eventually_sync(lambda: "registered again" in process.said, timeout=PATIENCE)
    client = site.client("one")
    ended = client.until_ended(turn)
    assert (ended["status"], ended["error_code"]) == ("interrupted", "database_away")
    texts = results(client, turn)
    assert texts
    assert all("the server's database was unreachable" in text for text in texts)
    following = client.say(conversation, 'call affect {"key": "next"}')
    assert client.until_ended(following)["status"] == "completed"
    assert site.verdict() == []


def results(client: Client, turn: str) -> list[str]:
    """Return what the calls of a turn have told the model."""
    return [event["result"] for event in client.events(turn) if event["type"] == "tool_result"]


@pytest.mark.parametrize("how", ["stopped", "silent"])
def test_g11_a_cancel_ends_what_runs_while_the_database_is_away(
    scaled: MakeSite, postgres: Postgres, how: str
):
    site = scaled()  # whose leases are long: it is not they that end what runs
    site.serve_uvicorn("one")
    client = site.client("one")
    conversation = client.converse()
    turn = client.say(conversation, 'call affect {"key": "a", "seconds": 600}')
    client.until_running(turn, "affect")
    [call] = client.turn(turn)["calls"]
    watcher = site.watch(conversation, "one")
    watcher.until("snapshot")
    if how == "stopped":
        postgres.crash()
    else:
        postgres.signal(signal.SIGSTOP)
        watcher.send(type="ping")  # whose answer waits for the database, in front of the cancel
    watcher.send(type="cancel_turn", op_id="o", turn_id=turn)
    eventually_sync(lambda: site.has_ended(call["tool_id"]), timeout=with_room(2.0))
    assert watcher.find("turn_end") is watcher.find("op_result") is None
    if how == "stopped":
        watcher.until("error", code="unavailable", op_id="o", within=LONG_PATIENCE)
        postgres.start()
    else:
        postgres.signal(signal.SIGCONT)
        watcher.until("op_result", op_id="o", outcome="accepted")
    ended = client.until_ended(turn, within=LONG_PATIENCE)
    assert (ended["status"], ended["ended_by_reason"]) == ("cancelled", "user")
    assert site.verdict() == []


def test_g01_a_cancel_at_another_process_is_refused_while_it_cannot_be_stored(
    scaled: MakeSite, postgres: Postgres
):
    site = scaled()
    start_two(site)
    client = site.client("one")
    turn = client.say(client.converse(), 'call affect {"key": "a", "seconds": 600}')
    client.until_running(turn, "affect")
    [call] = client.turn(turn)["calls"]
    _, other = sides(site, turn)
    postgres.crash()
    refused = other.cancel(turn)
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert int(refused.headers["Retry-After"]) > 0
    assert not site.has_ended(call["tool_id"])
    postgres.start()
    eventually_sync(lambda: other.cancel(turn).is_success, timeout=PATIENCE)
    assert client.until_ended(turn, within=LONG_PATIENCE)["status"] == "cancelled"
    assert site.verdict() == []


def test_g05_a_process_that_stands_still_within_a_transaction_gives_its_lock_up(
    scaled: MakeSite,
):
    site = scaled(**QUICK_LEASE)
    impatient = {
        "DATABASE_URL": f"{site.database_url}?options=-c%20idle_in_transaction_session_timeout%3D5000"
    }
    frozen = site.serve_uvicorn("one", environ=impatient)
    client = site.client("one")
    conversation = client.converse()
    site.arm("one", "in_end:stop")
    turn = client.say(conversation, "say hello")
    eventually_sync(lambda: frozen.is_frozen)
    site.serve_uvicorn("two")
    client = site.client("two")
    assert client.until_ended(turn, within=REAP_BOUND + 5.0)["status"] == "interrupted"
    following = client.say(conversation, 'call affect {"key": "next"}')
    assert client.until_ended(following)["status"] == "completed"
    frozen.thaw()
    eventually_sync(lambda: "registered again" in frozen.said, timeout=PATIENCE)
    assert site.verdict() == []
