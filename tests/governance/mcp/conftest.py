"""Harnesses, and servers that listen."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import pytest

from governance.mcp.specs import McpTiming
from tests.governance.mcp.support import EVERYTHING, HAS_EVERYTHING, HERE, MARK, McpHarness
from tests.support import PATIENCE, eventually, eventually_sync


@pytest.fixture(autouse=True)
def _slow_servers_are_waited_for(monkeypatch):
    """A slow machine makes no server late, but where a test names its times itself."""
    patient = partial(McpTiming, ready_timeout=PATIENCE, return_timeout=PATIENCE)
    monkeypatch.setattr("governance.mcp.tools.McpTiming", patient)


@pytest.fixture(autouse=True)
def _variables_that_servers_may_have(settings):
    settings.GOVERNANCE_MCP_VARIABLES = [MARK, "TOKEN", "TEAM"]


@pytest.fixture
async def harness(monkeypatch):
    harness = McpHarness(monkeypatch)
    yield harness
    await harness.aclose()
    await eventually(lambda: harness.processes == [])


@pytest.fixture(scope="session")
def everything():
    """The program of the reference server, which is written by others."""
    if not HAS_EVERYTHING and os.environ.get("CI") != "true":
        pytest.skip("node or @modelcontextprotocol/server-everything is not installed: npm ci")
    return EVERYTHING


@pytest.fixture(scope="module")
def everything_url(everything):
    """The reference server over streamable HTTP."""
    port = _free_port()
    with _listening("node", everything, "streamableHttp", port=port):
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture(scope="module")
def counting():
    """The SDK's own server."""
    server = Counting()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def stoppable_server():
    """The same, for a test that stops it."""
    server = Counting()
    server.start()
    yield server
    server.stop()


class Counting:
    """The server of `http_server.py`."""

    def __init__(self):
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._context = None

    def start(self):
        program = HERE / "http_server.py"
        self._context = _listening(sys.executable, program, self.port, port=self.port)
        self._context.__enter__()

    def stop(self):
        if self._context is not None:
            self._context.__exit__(None, None, None)
            self._context = None


@contextmanager
def _listening(*words, port):
    environment = {**os.environ, "PORT": str(port), "COUNTING_TOKEN": "Bearer open sesame"}
    process = subprocess.Popen(
        [*map(str, words)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        eventually_sync(lambda: _answers(port), timeout=PATIENCE)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
