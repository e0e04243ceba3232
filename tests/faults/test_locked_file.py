"""Another process keeps the SQLite file locked. Whoever reads goes on, and what is written comes when it is let go."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import httpx
import pytest

from tests.faults.client import Client
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.support import PATIENCE, eventually_sync

pytestmark = pytest.mark.timeout(240)

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
