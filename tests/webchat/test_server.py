"""The real server on a real port: what a WebSocket client sees when it goes down."""

import base64
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import httpx
import pytest

from tests.e2e.site import Site
from tests.support import LONG_PATIENCE, eventually_sync, with_room

TEXT, CLOSE = 1, 8


class Address(Protocol):
    """Where a server listens."""

    port: int
    url: str


class Wire:
    """The least of a WebSocket client: text frames out, everything in."""

    def __init__(self, site: Address, *, path: str, cookie: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", site.port), timeout=LONG_PATIENCE)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: 127.0.0.1:{site.port}",
            f"Origin: {site.url}",
            f"Cookie: sessionid={cookie}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        )
        self._socket.sendall("\r\n".join((*lines, "", "")).encode())
        self._stream = self._socket.makefile("rb")
        self.status = self._stream.readline().decode()
        while self._stream.readline().strip():
            pass

    def send(self, **frame: Any) -> None:
        """Send a small frame; the mask is all zeros, which leaves the text as it is."""
        text = json.dumps(frame).encode()
        assert len(text) < 126
        self._socket.sendall(struct.pack("!BB", 0x80 | TEXT, 0x80 | len(text)) + bytes(4) + text)

    def receive(self) -> tuple[int, bytes]:
        """Return the next frame's kind and content."""
        first, second = self._stream.read(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._stream.read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._stream.read(8))
        return first & 0x0F, self._stream.read(length)

    def close(self) -> None:
        """Leave without a word."""
        self._stream.close()
        self._socket.close()

    def read_to_the_close(self) -> tuple[list[str], int]:
        """Return the types of the frames that come, and the code with which the server closes."""
        types: list[str] = []
        while True:
            kind, content = self.receive()
            if kind == CLOSE:
                (code,) = struct.unpack("!H", content[:2])
                self._socket.sendall(struct.pack("!BB", 0x80 | CLOSE, 0x80) + bytes(4))
                self.close()
                return types, code
            if kind == TEXT:
                types.append(json.loads(content)["type"])


@contextmanager
def signed_in(site: Site) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=site.url,
        trust_env=False,
        headers={"Referer": site.url},
        timeout=LONG_PATIENCE,
    ) as client:
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', client.get("/login/").text)
        assert token is not None
        form = {
            "username": "demo",
            "password": site.password("demo"),
            "csrfmiddlewaretoken": token[1],
        }
        client.post("/login/", data=form)
        client.headers["X-CSRFToken"] = client.cookies["csrftoken"]
        yield client


def test_who_is_connected_when_the_server_goes_down_sees_the_turn_end_and_is_told_to_come_back(
    tmp_path: Path,
):
    site = Site(tmp_path)
    try:
        site.start()
        with signed_in(site) as client:
            made = client.post("/api/conversations", json={}).json()["conversation_id"]
            cookie = client.cookies["sessionid"]
        nobody = Wire(site, path=f"/ws/conversations/{made}/", cookie="nonsense")
        assert nobody.read_to_the_close() == ([], 4401)
        wire = Wire(site, path=f"/ws/conversations/{made}/", cookie=cookie)
        assert " 101 " in wire.status
        wire.send(type="hello", protocol=1)
        wire.send(type="message", client_id="c", text="wait 1")
        while b'"tool_start"' not in wire.receive()[1]:
            pass
        site.interrupt()
        types, code = wire.read_to_the_close()
        assert (types[-1], code) == ("turn_end", 1012)
        assert site.wait() == 0, site.said
    finally:
        site.leave()


@pytest.mark.parametrize("kind", ["acks", "no acks"])
@pytest.mark.parametrize("server", ["daphne", "uvicorn", "hypercorn"])
def test_a_client_that_stops_reading_costs_little_memory_and_delays_no_other(
    server: str, kind: str
):
    pytest.importorskip(server)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    site = SimpleNamespace(port=port, url=f"http://127.0.0.1:{port}")
    command = [sys.executable, "-m", "tests.webchat.flood", server, str(port), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            while "started" not in process.stdout.readline():
                assert process.poll() is None
            eventually_sync(lambda: accepts(port))
            slow = Wire(site, path="/")
            peer = Wire(site, path="/")
            delays = []
            facts: dict[str, Any] = {}
            while "gained" not in facts:
                facts = json.loads(peer.receive()[1])
                if "sent_at" in facts:
                    delays.append(time.monotonic() - facts["sent_at"])
            received = 0
            numbers: list[int] = []
            while len(numbers) < facts["taken"]:
                content = slow.receive()[1]
                received += len(content)
                numbers.append(int(content.split()[0]))
            if kind == "acks":
                slow.send(type="ack", seq=0, received=received)
                assert json.loads(slow.receive()[1]) == {"room": True}
            slow.close()
            peer.close()
        finally:
            process.kill()
    assert numbers == list(range(len(numbers)))  # what was sent to it is whole and in order
    assert facts["gained"] < 10_000_000  # of 300 MB that were pushed
    assert facts["taken"] < 300
    assert len(delays) == 200
    assert sorted(delays)[190] < with_room(2.0)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
