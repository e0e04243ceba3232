"""A call waits for a server that restarts, and is sent once (issue 36)."""

import asyncio
import sys
from dataclasses import replace

import pytest

from governance import Cancellation, CancelReason, Disposition
from governance.core.calls import CallStatus
from tests.governance.mcp.support import HERE, QUICK, McpHarness, address, command, unruly
from tests.support import eventually, with_room

SLOW = replace(QUICK, first_backoff=0.2, longest_backoff=0.2)


@pytest.fixture
async def harness(monkeypatch):
    harness = McpHarness(monkeypatch, timing=SLOW)
    yield harness
    await harness.aclose()
    await eventually(lambda: harness.processes == [])


@pytest.fixture
def gate(tmp_path):
    """A file without which the server of `gated` ends as it starts."""
    path = tmp_path / "gate"
    path.touch()
    return path


def gated(gate, **values):
    program = f"test -e {gate} || exit 7; exec {sys.executable} {HERE / 'unruly_server.py'}"
    return command("unruly", "sh", "-c", program, **values)


async def waiting(harness, reason="it ended with exit code 7", **arguments):
    """Start a call of a server that is gone, and wait until its card says so."""
    live, outcome = harness.call("unruly_echo", **arguments)
    said = f"Waiting for the MCP server 'unruly': {reason}."
    await eventually(lambda: live.last_progress and live.last_progress.message == said)
    return live, outcome


async def test_a_call_right_after_a_crash_waits_for_the_new_process(harness):
    connection = await harness.begin(unruly())
    crashed = await harness.run("unruly_crash")
    assert crashed.disposition is Disposition.INDETERMINATE
    assert connection.starts == 1, "what was sent is not sent again"

    live, outcome = harness.call("unruly_echo", text="back")

    assert (await outcome).result == "back"
    assert live.last_progress.message == "The MCP server 'unruly' is running."
    assert connection.starts == 2


async def test_a_call_waits_through_several_failed_starts(harness, gate):
    connection = await harness.begin(gated(gate))
    gate.unlink()
    await harness.run("unruly_crash")
    _, outcome = await waiting(harness, text="at last")
    await eventually(lambda: connection.starts >= 4)
    gate.touch()
    assert (await outcome).result == "at last"


async def test_a_cancel_ends_the_wait_and_the_server_never_hears_of_the_call(harness, gate):
    await harness.begin(gated(gate))
    gate.unlink()
    await harness.run("unruly_crash")
    live, outcome = await waiting(harness)
    live.cancel(Cancellation(reason=CancelReason.USER))
    cancelled = await outcome
    assert cancelled.status is CallStatus.CANCELLED
    assert cancelled.disposition is Disposition.NOT_STARTED
    gate.touch()


async def test_the_limit_of_the_call_ends_the_wait(harness, gate):
    await harness.begin(gated(gate, timeout=1.0))
    gate.unlink()
    await harness.run("unruly_crash")
    _, outcome = await waiting(harness)
    ended = await outcome
    assert ended.disposition is Disposition.NOT_STARTED
    assert ended.duration < with_room(1.5)


async def test_a_call_without_a_limit_does_not_wait_for_ever(monkeypatch, gate):
    harness = McpHarness(monkeypatch, timing=replace(SLOW, restart_timeout=0.5))
    try:
        await harness.begin(gated(gate, timeout=0))
        gate.unlink()
        await harness.run("unruly_crash")
        ended = await harness.run("unruly_echo")
        assert ended.disposition is Disposition.NOT_STARTED
        assert "The MCP server 'unruly' is not running: it ended with exit code" in ended.result
    finally:
        await harness.aclose()


async def test_a_server_that_is_switched_off_meanwhile_ends_the_wait(monkeypatch):
    harness = McpHarness(monkeypatch, timing=replace(QUICK, first_backoff=60, longest_backoff=60))
    try:
        await harness.begin(unruly(timeout=600))
        await harness.run("unruly_crash")
        _, outcome = await waiting(harness, "it ended with exit code 3")
        harness.tools.apply([])
        ended = await asyncio.wait_for(outcome, with_room(5))
        assert ended.disposition is Disposition.NOT_STARTED
        assert "it was switched off or changed by an administrator" in ended.result
    finally:
        await harness.aclose()


async def test_a_call_waits_for_a_server_at_an_address(harness, stoppable_server, monkeypatch):
    monkeypatch.setenv("COUNTING_TOKEN_OF_OURS", "Bearer open sesame")
    token = (("Authorization", "COUNTING_TOKEN_OF_OURS"),)
    await harness.begin(address("unruly", stoppable_server.url, headers=token))
    await asyncio.to_thread(stoppable_server.stop)
    live, outcome = harness.call("unruly_count", to=1)
    said = "Waiting for the MCP server 'unruly': it cannot be reached."
    await eventually(lambda: live.last_progress and live.last_progress.message == said)
    await asyncio.to_thread(stoppable_server.start)
    assert (await outcome).result.startswith("counted to 1")
