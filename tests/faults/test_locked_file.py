"""Another process keeps the SQLite file locked. Whoever reads goes on, and what is written comes when it is let go."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import httpx
import pytest

from tests.faults.client import Client
from tests.faults.cluster import LEASE, TTL, let_pass
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.support import PATIENCE, eventually_sync, with_room

pytestmark = pytest.mark.timeout(240)

HELD = 'call affect {"key": "a", "seconds": 600}'
ASKED = f"call sessions_ask {json.dumps({'agent': '', 'message': HELD})}"
READS = 15.0  # seconds: who waits for the lock waits for twenty


@contextmanager
def locked(site: Site) -> Iterator[None]:
    """Keep the file locked, as a process does that stands still in the middle of a write."""
    file = site.var / "db.sqlite3"
    with closing(sqlite3.connect(file, timeout=20, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


def ask(client: Client, path: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {client.token}"}
    return httpx.get(client.url + path, headers=headers, trust_env=False, timeout=READS)


@pytest.mark.parametrize("server", ["serve", "uvicorn"])
def test_reads_and_sockets_go_on_while_another_process_holds_the_write_lock(
    embedded: MakeSite, server: str
):
    site = embedded(
        WEBCHAT_HEARTBEAT_INTERVAL=1.0, TURNS_LEASE_FENCE_AFTER=200.0, TURNS_LEASE_TTL=300.0
    )
    if server == "serve":
        site.serve()
    else:
        site.serve_uvicorn()
    client = site.client()
    conversation = client.converse()
    before = client.say(conversation, "say before")
    client.until_ended(before, within=PATIENCE)
    held = client.say(conversation, 'call affect {"key": "a", "seconds": 600}')
    client.until_running(held, "affect", within=PATIENCE)
    watcher = site.watch(conversation)
    watcher.until("snapshot")
    said: list[str] = []

    def say_late() -> None:
        with suppress(httpx.TransportError, AssertionError):  # who waits for too long is refused
            said.append(client.say(conversation, "say after", client_id="late"))

    pages = (
        "/",
        f"/c/{site.client(user='root').converse()}/",
        "/admin/",
        "/admin/turns/turn/",
        "/admin/turns/turn/overview/",
        "/admin/governance/toolpolicy/",
    )
    browser = site.administrator()
    with locked(site):
        writing = threading.Thread(target=say_late)
        writing.start()
        for _ in range(3):
            for path in (
                "/readyz",
                "/api/turns/active",
                f"/api/turns/{before}",
                f"/api/turns/{before}/events",
                "/api/conversations",
                f"/api/conversations/{conversation}/messages",
                f"/api/conversations/{conversation}/history",
                "/login/",
            ):
                assert ask(client, path).status_code == 200, path
        for page in pages:
            browser.read(page)
        seen = len(watcher.frames)
        eventually_sync(lambda: _heartbeats(watcher.frames[seen:]) >= 2, timeout=READS)
        late = site.watch(conversation)
        late.until("snapshot", within=READS)
        late.until("heartbeat", within=READS)
    writing.join(PATIENCE)
    [queued] = said or [client.say(conversation, "say after", client_id="late")]
    assert client.cancel(held).is_success
    assert client.until_ended(held, within=PATIENCE)["status"] == "cancelled"
    assert client.until_ended(queued, within=PATIENCE)["status"] in {"completed", "cancelled"}
    assert site.verdict() == []


def _heartbeats(frames: list[dict[str, object]]) -> int:
    return sum(frame["type"] == "heartbeat" for frame in frames)


@pytest.mark.parametrize("holder", ["own tool", "foreign process"])
def test_a_locked_file_costs_a_process_that_is_alone_no_turn(embedded: MakeSite, holder: str):
    site = embedded(**LEASE)
    site.serve()
    client = site.client()
    held = client.say(client.converse(), 'call affect {"key": "a", "held": true}')
    client.until_running(held, "affect", within=PATIENCE)
    seconds = TTL * 2
    if holder == "own tool":
        locking = client.say(client.converse(), f'call lock_file {{"seconds": {seconds}}}')
        client.until_ended(locking, within=PATIENCE + seconds)
    else:
        with locked(site):
            let_pass(seconds)
    site.let_go()
    turn = client.until_ended(held, within=PATIENCE)
    assert (turn["status"], turn["calls"][0]["status"]) == ("completed", "succeeded")
    assert site.verdict() == []


def send(work: Callable[[], object]) -> "Future[object]":
    """Do it in a thread, since the answer comes when the file is let go."""
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        return pool.submit(work)
    finally:
        pool.shutdown(wait=False)


@pytest.mark.parametrize("means", ["button", "word", "api", "administrator", "call"])
def test_c01_a_cancel_ends_what_runs_while_the_file_is_locked(embedded: MakeSite, means: str):
    site = embedded(**LEASE)
    site.serve()
    client = site.client()
    conversation = client.converse()
    turn = client.say(conversation, 'call affect {"key": "a", "seconds": 600}')
    client.until_running(turn, "affect", within=PATIENCE)
    [call] = client.turn(turn)["calls"]
    behind = client.say(conversation, 'call affect {"key": "behind"}')
    watcher = site.watch(conversation)
    watcher.until("snapshot")
    operator = site.client(user="root")
    cancel: dict[str, Callable[[], object]] = {
        "button": lambda: watcher.send(type="cancel_turn", op_id="o", turn_id=turn),
        "word": lambda: watcher.send(type="message", client_id="w", text="stop"),
        "api": lambda: client.cancel(turn),
        "administrator": lambda: operator.cancel(turn),
        "call": lambda: client.post(f"/api/turns/{turn}/abort-tool/{call['tool_id']}"),
    }
    with locked(site):
        asked_at = time.monotonic()
        answer = send(cancel[means])
        eventually_sync(lambda: site.has_ended(call["tool_id"]))
        assert time.monotonic() - asked_at < with_room(1.0)
        told = [frame["type"] for frame in watcher.frames]
        assert not {"op_result", "message_result", "tool_result", "turn_end"} & set(told)
        assert client.turn(turn)["status"] == "running"
        assert means in ("button", "word") or not answer.done()
    ended = client.until_ended(turn, within=PATIENCE)
    by = {"administrator": "admin"}.get(means, "user")
    [stopped] = ended["calls"]
    assert (stopped["status"], stopped["ended_by"]["reason"]) == ("cancelled", by)
    if means == "call":
        assert ended["status"] == "completed"
        assert client.until_ended(behind, within=PATIENCE)["status"] == "completed"
    else:
        assert (ended["status"], ended["ended_by_reason"]) == ("cancelled", by)
        assert client.until_ended(behind, within=PATIENCE)["status"] == "cancelled"
    if means == "button":
        watcher.until("op_result", op_id="o", outcome="accepted")
    elif means == "word":
        watcher.until("message_result", client_id="w", cancelled=True)
    assert site.verdict(cancel_within=PATIENCE) == []


def test_c10_a_cancel_ends_sub_agents_while_the_file_is_locked(embedded: MakeSite):
    site = embedded(**LEASE)
    site.serve()
    client = site.client()
    turn = client.say(client.converse(), ASKED)

    def below() -> str | None:
        return next((line.split()[2] for line in site.effects()), None)

    call_id = eventually_sync(below, timeout=PATIENCE)
    with locked(site):
        send(lambda: client.cancel(turn))
        eventually_sync(lambda: site.has_ended(call_id))
    assert client.until_ended(turn, within=PATIENCE)["status"] == "cancelled"
    site.until_settled(within=PATIENCE)
    assert [row["status"] for row in site.record().turns] == ["cancelled", "cancelled"]
    assert site.verdict(cancel_within=PATIENCE) == []
