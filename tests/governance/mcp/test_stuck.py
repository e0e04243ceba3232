"""Servers that take what they are sent and say nothing. Every request has a bound, and the next call is well (T1, C13)."""

import asyncio
import socket
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from governance import Cancellation, CancelReason
from governance.core.calls import CallStatus, Disposition, ErrorType
from tests.governance.mcp.odd_server import OddServer
from tests.governance.mcp.support import QUICK, McpHarness, address, unruly
from tests.support import LONG_PATIENCE, eventually, pass_time
from tests.tcp_server import TcpServer

BY_USER = Cancellation(reason=CancelReason.USER)


@pytest.fixture
async def harness(monkeypatch):
    harness = McpHarness(monkeypatch, timing=replace(QUICK, notice_timeout=2))
    yield harness
    await harness.aclose()


class Proxy(TcpServer):
    """Passes bytes on between a client and a server; what comes while it `is_hung` goes nowhere, for good."""

    def __init__(self, url):
        super().__init__()
        self.is_hung = False
        self._target = urlsplit(url)

    @property
    def url(self):
        return f"http://{self.address}{self._target.path}"

    async def _talk(self, reader, writer):
        there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
        try:
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        finally:
            back.close()

    async def _pass(self, source, sink):
        is_lost = False
        try:
            while piece := await source.read(65_536):
                is_lost = is_lost or self.is_hung
                if not is_lost:
                    sink.write(piece)
                    await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()


async def test_a_server_is_well_again_as_soon_as_its_proxy_is(harness, everything_url):
    async with Proxy(everything_url) as proxy:
        connection = await harness.begin(address("all", proxy.url))
        proxy.is_hung = True
        live, outcome = harness.call("all_echo", message="x")
        assert harness.executor.set_deadline(live, 0.3)
        lost = await outcome
        assert lost.error_type is ErrorType.TIMEOUT
        assert "It has ended" not in lost.result
        await eventually(lambda: harness.health.failures == ["it did not answer in time"])
        proxy.is_hung = False
        await eventually(
            lambda: connection.connect_soon() or connection.is_connected, timeout=LONG_PATIENCE
        )
        for number in range(5):
            assert str(number) in (await harness.run("all_echo", message=f"{number}")).result
        await harness.tools.aclose()


async def cancelled(harness, name, *, when, **arguments):
    """Start a call, cancel it when `when` is true, and return its outcome."""
    live, outcome = harness.call(name, **arguments)
    await eventually(when)
    live.cancel(BY_USER)
    return await outcome


async def test_an_unanswered_cancel_holds_up_nobody(monkeypatch):
    harness = McpHarness(monkeypatch, timing=replace(QUICK, notice_timeout=600))
    async with OddServer("") as server:
        await harness.begin(address("odd", server.url))
        server.is_hung = True
        lost = await cancelled(harness, "odd_tool", when=lambda: "tools/call" in server.asked)
        assert lost.disposition is Disposition.INDETERMINATE
        await eventually(lambda: "notifications/cancelled" in server.asked)
        server.is_hung = False
        for _ in range(3):
            assert (await harness.run("odd_tool")).result == "fine"
        await harness.aclose()


async def test_a_session_that_takes_no_notice_is_told_and_opened_anew(harness):
    async with OddServer("") as server:
        connection = await harness.begin(address("odd", server.url))
        server.is_hung = True
        _, other = harness.call("odd_tool")
        await eventually(lambda: "tools/call" in server.asked)
        await cancelled(harness, "odd_tool", when=lambda: server.asked.count("tools/call") == 2)
        await eventually(lambda: harness.health.failures)
        assert harness.health.failures == ["it did not answer in time"]
        assert not connection.is_connected
        assert not other.done()  # it may still be answered
        server.is_hung = False
        await eventually(lambda: connection.connect_soon() or connection.is_connected)
        assert connection.starts == 2
        assert (await harness.run("odd_tool")).result == "fine"
        await harness.tools.aclose()
        assert (await other).disposition is Disposition.INDETERMINATE


@pytest.mark.parametrize("habit", ["changes its list", "asks back"])
async def test_whatever_is_sent_unasked_has_a_bound_too(monkeypatch, habit):
    """A list that is read again, and the answer to a question of the server: neither holds up the calls after it."""
    bounds = replace(QUICK, request_timeout=4, notice_timeout=2)
    harness = McpHarness(monkeypatch, timing=bounds)
    async with OddServer(habit) as server:
        connection = await harness.begin(address("odd", server.url))
        assert (await harness.run("odd_tool")).result == "fine"
        await eventually(lambda: harness.health.failures)
        assert harness.health.failures[0] == "it did not answer in time"
        server.habit, server.is_hung = "", False
        await eventually(lambda: connection.connect_soon() or connection.is_connected)
        assert (await harness.run("odd_tool")).result == "fine"
        await harness.aclose()


async def test_a_call_that_waits_for_a_connection_was_not_started(harness):
    async with OddServer("") as server:
        connection = await harness.begin(address("odd", server.url))
        server.is_hung = True
        await cancelled(harness, "odd_tool", when=lambda: "tools/call" in server.asked)
        await eventually(lambda: harness.health.failures)
        known = len(server.asked)
        await eventually(lambda: connection.connect_soon() is not None)
        outcome = await cancelled(harness, "odd_tool", when=lambda: len(server.asked) > known)
        assert outcome.status is CallStatus.CANCELLED
        assert outcome.disposition is Disposition.NOT_STARTED
        assert "It was not started and had no effect." in outcome.result
        await harness.tools.aclose()


async def test_a_call_that_finds_no_way_to_the_server_was_not_started(harness):
    async with OddServer("") as server:
        await harness.begin(address("odd", server.url))
        port = int(server.url.rpartition(":")[2].partition("/")[0])
    with socket.socket() as full:
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        full.bind(("127.0.0.1", port))
        full.listen(0)
        crowd = [socket.socket() for _ in range(4)]
        for visitor in crowd:
            visitor.setblocking(False)
            visitor.connect_ex(("127.0.0.1", port))
        live, outcome = harness.call("odd_tool")
        await eventually(lambda: live.limits.deadline)
        live.cancel(BY_USER)
        assert (await outcome).disposition is Disposition.NOT_STARTED
        await harness.tools.aclose()
        for visitor in crowd:
            visitor.close()


async def test_a_command_that_stops_reading_is_replaced_and_what_it_never_read_was_not_started(
    monkeypatch,
):
    harness = McpHarness(monkeypatch, timing=replace(QUICK, request_timeout=600))
    connection = await harness.begin(unruly("asleep", timeout=0))
    _, first = harness.call("unruly_echo", text="x" * 2_000_000)
    waiting = [harness.call("unruly_echo", text="y") for _ in range(3)]
    await eventually(lambda: harness.health.failures or pass_time(100))
    assert harness.health.failures[0] == "it does not read its input"
    waiting[0][0].cancel(BY_USER)
    assert (await waiting[0][1]).disposition is Disposition.NOT_STARTED
    await harness.tools.aclose()
    assert (await first).disposition is Disposition.INDETERMINATE
    for _, outcome in waiting[1:]:
        settled = await outcome
        assert settled.disposition is Disposition.NOT_STARTED
        assert "It was not run" in settled.result
    assert connection.starts >= 1
    await harness.aclose()
    await eventually(lambda: harness.processes == [])
