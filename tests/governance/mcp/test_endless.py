"""Servers that send without end. They take their share of the event loop and no more, and fill no log (T1)."""

import asyncio
import itertools
import logging
import time

import pytest

from governance import Cancellation, CancelReason
from governance.core.calls import Disposition
from governance.mcp.http import _LISTEN_PAUSE
from governance.mcp.specs import McpTiming
from governance.mcp.throttle import _BURST, _LINES, Throttle
from tests.governance.core.support import advance, on_manual_clock
from tests.governance.mcp.odd_server import VERSION, OddServer
from tests.governance.mcp.support import address, unruly
from tests.support import eventually

_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
_CHATTER = b"event: evil\ndata: x\n\n: \n\n" * 1_000
_AGAIN = b"retry: 0\nid: 1\ndata: \n\n"
_CHANGED = b'data: {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n\n'
_SLOW = 0.1
_PIECE = 65_536  # bytes that are read at once


class EndlessServer(OddServer):
    """`reopens` ends each stream at once and asks for another. `chatters` answers a call with events of no kind.

    `changes` says all the time that its list has changed, which it is slow to give.
    """

    def __init__(self, habit):
        super().__init__(habit)
        self.opened_at = []
        self.listed_at = []

    def _answer(self, writer, message):
        clock = asyncio.get_running_loop().time
        if message.get("method") == "initialize":
            about = {"name": "endless", "version": "1"}
            words = {"protocolVersion": VERSION, "capabilities": {}, "serverInfo": about}
            self._begin_session(writer, message["id"], words)
        elif not message and self.habit == "reopens":
            self.opened_at.append(clock())
            writer.write(_STREAM + _AGAIN)
            writer.close()
        elif not message and self.habit == "changes":
            writer.write(_STREAM)
            self._repeat(writer, _CHANGED)
        elif message.get("method") == "tools/list" and self.habit == "changes":
            self.listed_at.append(clock())
            later = super()._answer
            asyncio.get_running_loop().call_later(_SLOW, later, writer, message)
        elif message.get("method") == "tools/call" and self.habit == "chatters":
            writer.write(_STREAM)
            self._repeat(writer, _CHATTER)
        else:
            super()._answer(writer, message)

    def _repeat(self, writer, piece):
        if not writer.is_closing():
            if writer.transport.get_write_buffer_size() < 1_000_000:
                writer.write(piece)
            asyncio.get_running_loop().call_later(0.005, self._repeat, writer, piece)


@pytest.fixture
def sdk_log(caplog):
    caplog.set_level(logging.DEBUG, logger="governance")
    return lambda: [record for record in caplog.records if record.name.startswith("mcp.")]


@pytest.fixture
def lines_read(monkeypatch):
    """The lines of each piece that was read."""
    read, wait_after = [], Throttle.wait_after

    async def counted(throttle, piece):
        read.append(piece.count(b"\n"))
        await wait_after(throttle, piece)

    monkeypatch.setattr(Throttle, "wait_after", counted)
    return read


def most_lines(seconds):
    """How many lines a stream may have given in that time. There is room for two last pieces."""
    return _LINES * McpTiming().messages_per_second * (_BURST + seconds) + 2 * _PIECE


async def test_a_server_that_wants_each_stream_opened_again_is_asked_at_a_pace(harness):
    async with EndlessServer("reopens") as server:
        await harness.begin(address("odd", server.url))
        await eventually(lambda: len(server.opened_at) > 3)
        first, *_, last = server.opened_at[:4]
        assert last - first > 3 * _LISTEN_PAUSE * 0.9
        assert (await harness.run("odd_tool")).result == "fine"
        await harness.tools.aclose()


async def test_a_list_that_changes_all_the_time_is_read_as_seldom_as_it_takes_long(harness):
    async with EndlessServer("changes") as server:
        await harness.begin(address("odd", server.url))
        await eventually(lambda: len(server.listed_at) > 3)
        _, *later = server.listed_at[:4]
        gaps = [after - before for before, after in itertools.pairwise(later)]
        assert min(gaps) > 9 * _SLOW
        await harness.tools.aclose()


async def test_events_without_end_fill_no_log_and_hold_up_no_cancel(harness, sdk_log, lines_read):
    async with EndlessServer("chatters") as server:
        await harness.begin(address("odd", server.url))
        began = time.monotonic()
        live, outcome = harness.call("odd_tool")
        await eventually(lambda: time.monotonic() > began + 2)
        assert 0 < sum(lines_read) < most_lines(time.monotonic() - began)
        live.cancel(Cancellation(reason=CancelReason.USER))
        assert (await outcome).disposition is Disposition.INDETERMINATE
        assert sdk_log() == []
        await harness.tools.aclose()


async def test_empty_lines_of_a_command_without_end_are_read_at_a_pace(harness, lines_read):
    began = time.monotonic()
    await harness.begin(unruly())
    assert (await harness.run("unruly_yawn")).result == "yawning"
    await eventually(lambda: time.monotonic() > began + 2)
    assert 0 < sum(lines_read) < most_lines(time.monotonic() - began)


@on_manual_clock
async def test_what_fits_passes_at_once_and_the_rest_at_a_pace():
    throttle = Throttle(McpTiming(longest_message=1_000, messages_per_second=1.0))
    clock = asyncio.get_running_loop().time
    began, passed = clock(), []

    async def read():
        for piece in (b"x" * 1_000, b"x" * 30, b"\n\n", b"\r\r"):
            await throttle.wait_after(piece)
            passed.append(clock() - began)

    reading = asyncio.create_task(read())
    await advance(10)
    await reading
    assert passed == pytest.approx([0, 0.3, 0.7, 1.1])
