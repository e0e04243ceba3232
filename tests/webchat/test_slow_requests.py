"""Requests that arrive too slowly are ended, and those that only take long are not."""

import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.web.http import HTTPFactory

from tests.e2e.site import Site
from tests.support import LONG_PATIENCE, eventually_sync
from webchat.slow_requests import BODY_BYTES, BODY_SECONDS, HEAD_SECONDS, TimedChannel

HEAD = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n"


class Client:
    """One connection, whose clock only moves when told."""

    def __init__(self) -> None:
        self.clock = Clock()
        factory: Any = HTTPFactory(reactor=self.clock)
        factory.protocol = TimedChannel
        self.channel = factory.buildProtocol(None)
        self.transport = StringTransport()
        self.channel.makeConnection(self.transport)

    def send(self, data: bytes, *, after: float = 0) -> None:
        self.clock.advance(after)
        if not self.is_ended:
            self.channel.dataReceived(data)

    @property
    def is_ended(self) -> bool:
        return bool(self.transport.disconnecting)


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_head_has_a_few_seconds_however_its_bytes_arrive(client: Client):
    client.send(b"GET / HTTP/1.1\r\nX: ")
    for _second in range(HEAD_SECONDS - 1):
        client.send(b"x", after=1)
    assert not client.is_ended
    client.send(b"x", after=1)
    assert client.is_ended


def test_a_connection_that_sends_nothing_is_ended(client: Client):
    client.clock.advance(HEAD_SECONDS)
    assert client.is_ended


def test_a_body_may_take_long_but_not_trickle(client: Client):
    client.send(HEAD % (100 * BODY_BYTES))
    for _part in range(5):
        client.send(bytes(BODY_BYTES), after=BODY_SECONDS - 1)
    assert not client.is_ended
    for _second in range(BODY_SECONDS):
        client.send(b"x", after=1)
    assert client.is_ended


def test_an_answer_may_take_any_time_and_a_connection_serves_several_requests(client: Client):
    for pause in (0, HEAD_SECONDS + 1, HEAD_SECONDS + 1):
        client.send(HEAD % 1, after=pause)
        client.send(b"x", after=HEAD_SECONDS - 1)
        client.clock.advance(3_600)
        client.channel.requests[0].finish()
    assert not client.is_ended
    client.send(b"GET", after=HEAD_SECONDS + 1)
    client.send(b" / HT", after=HEAD_SECONDS)
    assert client.is_ended


def test_the_server_ends_half_requests_and_logs_little(tmp_path: Path):
    site = Site(tmp_path)
    try:
        site.start()
        before = len(site.said)
        slow = [_half_request(site.port) for _each in range(20)]
        since = time.monotonic()
        with httpx.Client(base_url=site.url, trust_env=False, timeout=LONG_PATIENCE) as client:
            assert client.get("/healthz").status_code == 200
        for each in slow:
            each.settimeout(0.5)
            eventually_sync(partial(_is_ended, each), timeout=LONG_PATIENCE)
            each.close()
        assert time.monotonic() - since >= HEAD_SECONDS - 1
        assert len(site.said) - before < 2_000
    finally:
        site.leave()


def _half_request(port: int) -> socket.socket:
    half = socket.create_connection(("127.0.0.1", port), timeout=LONG_PATIENCE)
    half.sendall(b"GET / HTTP/1.1\r\nHost: here\r\nX: ")
    return half


def _is_ended(half: socket.socket) -> bool:
    """Send one more byte, and wait a moment for the end of the connection."""
    try:
        half.sendall(b"x")
        return half.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
