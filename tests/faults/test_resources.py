"""What a machine runs out of: disk, file descriptors, and memory for a client who does not read (G12)."""

import json
import re
import resource
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from scripts.servers import Postgres
from tests.faults import database_snapshot, measures
from tests.faults.bounds import PATIENT_EXIT
from tests.faults.cluster import let_pass, start_scaled
from tests.faults.conftest import MakeSite
from tests.faults.postgres_faults import refuse_writes
from tests.faults.site import Site
from tests.processes import Process
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync, with_room
from turns.conf import TurnsSettings

MEGABYTE = 1024 * 1024
SLOW_READERS = 64
QUEUE = MEGABYTE // 16  # of each, so that a fraction of what fills the default one does: 1 MiB
TURNS = 28
LONG = "say " + "word " * 6300  # goes through the channel layer whole
PINGS = 500_000  # their answers are some 60 MB
UNANSWERED_PINGS = with_room(60.0)  # Daphne lets go whoever answers none of them; uvicorn is sooner
SNAPSHOT_TURNS = 20  # some MB, of which the kernel takes a fraction
TERMINATED = {0, -15}  # uvicorn ends by the signal that it was sent
WORK = 64 * MEGABYTE  # what the turns themselves take: 5 to 20 MB, on a busy machine twice as much
ALLOWED_GROWTH = SLOW_READERS * QUEUE + WORK

pytestmark = pytest.mark.timeout(600)


def resident_bytes(process: Process) -> int:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def peak_bytes(process: Process) -> int:
    """Return the most that it has held: what a connection took is free once it is cut."""
    status = Path(f"/proc/{process.pid}/status").read_text("ascii")
    return int(re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[0]) * 1024


def open_files(process: Process) -> int:
    return len([*Path(f"/proc/{process.pid}/fd").iterdir()])


def serve(embedded: MakeSite, **settings: Any) -> Site:
    site = embedded(**settings)
    site.serve()
    return site


def serve_scaled(scaled: MakeSite, **settings: Any) -> Site:
    site = scaled(**settings)
    start_scaled(site, runners=1)
    return site


def test_a_full_disk_is_told_and_nothing_is_lost_when_there_is_room_again(embedded: MakeSite):
    site = embedded()
    process = site.serve()
    client = site.client()
    conversation = client.converse()
    turn_id = client.say(conversation, 'call affect {"key": "a", "held": true}')
    client.until_running(turn_id, "affect")
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1024, hard))
    answer = client.post(f"/api/conversations/{conversation}/messages", {"text": "help"})
    assert answer.status_code >= 500
    assert set(answer.json()) == {"error", "code"}
    site.let_go()
    let_pass(2.0)  # the tool ends, and its result cannot be stored
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    turn = client.until_ended(turn_id, within=PATIENCE)
    assert turn["status"] in ("completed", "failed", "interrupted")
    after = client.say(conversation, 'call affect {"key": "b"}')
    assert client.until_ended(after)["status"] == "completed"
    assert site.verdict() == []


def test_a_database_that_takes_no_writes_for_a_while_is_told_and_loses_nothing(
    scaled: MakeSite, postgres: Postgres
):
    """So PostgreSQL behaves whose disk is full: it reads, and refuses to write."""
    site = serve_scaled(scaled)
    client = site.client()
    conversation = client.converse()
    turn_id = client.say(conversation, 'call affect {"key": "a", "held": true}')
    client.until_running(turn_id, "affect")
    try:
        refuse_writes(postgres)
        path = f"/api/conversations/{conversation}/messages"
        refused = eventually_sync(
            lambda: found if (found := client.post(path, {"text": "help"})).is_error else None
        )
        assert refused.status_code >= 500
        assert set(refused.json()) == {"error", "code"}
        site.let_go()
        let_pass(2.0)  # the tool ends, and its result cannot be stored
    finally:
        refuse_writes(postgres, on=False)
    turn = client.until_ended(turn_id, within=PATIENCE)
    assert turn["status"] in ("completed", "failed", "interrupted")
    after = client.say(conversation, 'call affect {"key": "b"}')
    assert client.until_ended(after, within=PATIENCE)["status"] == "completed"
    assert site.verdict() == []


class SlowReader:
    """A client that opens a socket, says hello, reads that it is welcome, and never reads again.

    Its segments are small: the kernel keeps as many bytes for each connection as fit into a number of segments. Those
    of the loopback device are large. That would be megabytes which no process notices.
    """

    def __init__(self, site: Site, conversation: str, *, token: str = "") -> None:
        self._socket = socket.socket()
        self._socket.settimeout(LONG_PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect(("127.0.0.1", site.port()))
        lines = (
            f"GET /ws/conversations/{conversation}/ HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {token or site.tokens['ada']}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
        )
        self._socket.sendall("\r\n".join((*lines, "", "")).encode())
        assert b" 101 " in self._socket.recv(4096)
        hello = json.dumps({"type": "hello", "protocol": 1, "acks": True}).encode()
        self._socket.sendall(bytes((0x81, 0x80 | len(hello))) + bytes(4) + hello)
        if not token:
            assert self._socket.recv(64)  # it is on the list of viewers by then

    def ping(self, count: int) -> None:
        """Send so many long pings, unless the server has enough of them."""
        self._socket.settimeout(10)  # that is how it learns that the server has enough
        ping = bytes((0x89, 0x80 | 125)) + bytes(4 + 125)
        with suppress(ConnectionError, TimeoutError):
            for _ in range(count // 1000):
                self._socket.sendall(1000 * ping)

    def close(self) -> None:
        self._socket.close()


def open_sockets(site: Site) -> int:
    """Return what the metric of the web process says."""
    scrape = site.client(user="root").get("/metrics?scope=process").text
    [count] = re.findall(r"^turnkeeper_sockets (\d+)", scrape, re.MULTILINE)
    return int(count)


def viewers(site: Site) -> int:
    return len(database_snapshot.keys(site.database_url, "turns", "Viewer"))


@pytest.mark.parametrize("start", [Site.serve, Site.serve_uvicorn], ids=["serve", "uvicorn"])
def test_a_client_that_never_reads_is_let_go_and_keeps_no_server_from_its_end(
    embedded: MakeSite, start: Callable[..., Process]
):
    site = embedded(WEBCHAT_SEND_TIMEOUT=1.0)
    process = start(site, environ=PATIENT_EXIT)
    client = site.client()
    conversation = client.converse()
    for _ in range(SNAPSHOT_TURNS):
        client.until_ended(client.say(conversation, LONG), within=PATIENCE)
    reader = SlowReader(site, conversation)
    client.say(conversation, "help")
    eventually_sync(lambda: open_sockets(site) == viewers(site) == 0, timeout=UNANSWERED_PINGS)
    late = SlowReader(site, conversation)  # it is on its way out as the server goes
    process.terminate()
    assert process.wait(within=with_room(5.0)) in TERMINATED, process.said
    assert "A task of a socket failed" not in process.said
    reader.close()
    late.close()


def test_pings_of_a_signed_out_client_that_does_not_read_take_no_memory(embedded: MakeSite):
    site = embedded()
    process = site.serve()
    reader = SlowReader(site, site.client().converse(), token="wrong")
    before = peak_bytes(process)
    reader.ping(PINGS)
    growth = peak_bytes(process) - before
    reader.close()
    assert growth < PINGS * 125 / 3  # of what the answers are


@pytest.mark.parametrize(
    ("mode", "start"),
    [
        pytest.param("embedded", serve, id="embedded", marks=pytest.mark.long),
        pytest.param("scaled", serve_scaled, id="scaled"),
    ],
)
def test_who_has_no_free_file_descriptors_takes_nobody_for_dead_and_goes_on_when_there_are_some(
    request: pytest.FixtureRequest, mode: str, start: Callable[..., Site]
):
    site = start(request.getfixturevalue(mode))
    client = site.client()
    conversation = client.converse()
    assert client.until_ended(client.say(conversation, "help"))["status"] == "completed"
    plan = 'call affect {"key": "a", "held": true}\ncall ignore {"seconds": 0.1}'
    turn_id = client.say(conversation, plan)
    client.until_running(turn_id, "affect")
    limits = {
        process: resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        for process in site.processes.values()
    }
    for process, (_soft, hard) in limits.items():
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (open_files(process), hard))
    site.let_go()
    let_pass(2 * TurnsSettings.SWEEP_INTERVAL)
    for process, limit in limits.items():
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limit)
    assert client.until_ended(turn_id, within=PATIENCE)["status"] in ("completed", "failed")
    after = client.say(conversation, 'call affect {"key": "b"}')
    assert client.until_ended(after)["status"] == "completed"
    for process in limits:
        assert process.is_alive
        assert "The lease is lost" not in process.said
    assert site.verdict() == []


HALF_REQUESTS = 300
DESCRIPTORS = 150  # fewer than the connections
SILENCE = with_room(60.0)  # after which Daphne closes a connection


@pytest.mark.long
def test_connections_with_half_a_request_are_closed_and_fill_no_log(embedded: MakeSite):
    site = serve(embedded)
    [process] = site.processes.values()
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    before = process.said
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", site.port("web"))))
            for _ in range(HALF_REQUESTS)
        ]
        for connection in connections:
            with suppress(OSError):  # the server has no descriptor for it
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        eventually_sync(lambda: all(map(is_closed, connections)), timeout=2 * SILENCE)
    assert site.client().get("/healthz").status_code == 200
    said = process.said.removeprefix(before)
    assert len(said) < 200_000
    assert said.count("Traceback") < 20


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    ("mode", "start"), [("embedded", serve), ("scaled", serve_scaled)], ids=["embedded", "scaled"]
)
def test_g12_clients_that_do_not_read_take_no_memory_and_delay_nobody(
    request: pytest.FixtureRequest, mode: str, start: Callable[..., Site]
):
    site = start(
        request.getfixturevalue(mode),
        WEBCHAT_SEND_TIMEOUT=60.0,
        WEBCHAT_OUTBOX_BYTES=QUEUE,
        TURNS_MAX_QUEUED=TURNS,
    )
    process = site.processes["web"]
    client = site.client()
    loud, quiet = client.converse(), client.converse()
    watcher, other = site.watch(loud), site.watch(quiet)
    watcher.until("turn_end", turn_id=client.say(loud, LONG), within=PATIENCE)
    readers = [SlowReader(site, loud) for _ in range(SLOW_READERS)]
    before = resident_bytes(process)
    last_seen = watcher.last_seq
    turns = [client.say(loud, LONG) for _ in range(TURNS)]
    asked_at = time.monotonic()
    other.until("turn_end", turn_id=client.say(quiet, "help"), within=PATIENCE)
    measures.note("G12", "another conversation meanwhile", time.monotonic() - asked_at)
    watcher.until("turn_end", turn_id=turns[-1], within=90)
    growth = resident_bytes(process) - before
    measures.note("G12", "growth in MB", growth / MEGABYTE)
    pushed = sum(len(json.dumps(event)) for event in watcher.events() if event["seq"] > last_seen)
    for reader in readers:
        reader.close()
    assert pushed * SLOW_READERS > 3 * ALLOWED_GROWTH  # else this would prove nothing
    assert growth < ALLOWED_GROWTH
    eventually_sync(lambda: site.is_ready())
    assert site.verdict() == []
