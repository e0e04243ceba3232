"""What tools have started ends with their call, and nothing of it survives the kill -9 of their process (G8)."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from governance.conf import app_settings
from tests.faults import measures
from tests.faults.bounds import BUSY
from tests.faults.client import Client
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.processes import deaf, owned_by
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync

BOUND = PATIENCE
AFTER_CANCEL = 0.5  # seconds beyond the graces of a call that is cancelled
STUBBORN = "run sleep 301 & trap '' TERM; echo begun >begun; sleep 302"

pytestmark = pytest.mark.timeout(600)


def one_process(embedded: MakeSite) -> Site:
    site = embedded()
    site.serve()
    return site


def runner_and_web(scaled: MakeSite) -> Site:
    site = scaled()
    site.run_turns()
    site.serve(role="web")
    return site


MODES: Any = pytest.mark.parametrize(
    ("mode", "start", "owner"),
    [
        pytest.param("embedded", one_process, "web", id="embedded"),
        pytest.param("scaled", runner_and_web, "runner", id="scaled", marks=pytest.mark.long),
    ],
)
Start = Callable[[MakeSite], Site]


def begin(site: Site, client: Client) -> list[str]:
    """Let a command and a worker run that both ignore SIGTERM; return their turns."""
    turns = [
        client.say(client.converse(), text) for text in (STUBBORN, 'call ignore {"key": "deaf"}')
    ]
    client.approve(turns[0])
    client.until_running(turns[0], "exec")
    eventually_sync(lambda: [*site.var.glob("workspaces/*/begun")])
    eventually_sync(lambda: len(deaf(site.var)) > 1, timeout=LONG_PATIENCE)  # workers have to start
    return turns


@MODES
def test_g08_what_tools_have_started_dies_with_the_server(
    request: pytest.FixtureRequest, mode: str, start: Start, owner: str
):
    site = start(request.getfixturevalue(mode))
    begin(site, site.client())
    assert len(owned_by(site.var)) > 3
    site.processes[owner].kill()
    died_at = time.monotonic()
    eventually_sync(lambda: not owned_by(site.var), timeout=BOUND)
    measures.note("G8", "what tools have started", time.monotonic() - died_at)


@MODES
def test_g08_what_a_cancelled_call_has_started_is_gone_after_its_graces(
    request: pytest.FixtureRequest, mode: str, start: Start, owner: str
):
    site = start(request.getfixturevalue(mode))
    client = site.client()
    turns = begin(site, client)
    asked_at = time.monotonic()
    for turn_id in turns:
        assert client.cancel(turn_id).is_success
    bound = app_settings.CANCEL_GRACE + app_settings.KILL_GRACE + AFTER_CANCEL + BUSY
    eventually_sync(lambda: not deaf(site.var), timeout=bound)
    measures.note("G8", "after a cancel, TERM ignored", time.monotonic() - asked_at)
    for turn_id in turns:
        assert client.until_ended(turn_id)["status"] == "cancelled"
    assert site.verdict() == []


def test_what_an_ended_command_has_put_in_the_background_goes_on(embedded: MakeSite):
    site = embedded()
    process = site.serve()
    client = site.client()
    turn = client.say(client.converse(), "run sleep 303 >/dev/null 2>&1 &")
    client.approve(turn)
    assert client.until_ended(turn)["status"] == "completed"
    left = [pid for pid in owned_by(site.var) if pid != process.pid]
    assert len(left) == 1
    process.kill()
    assert owned_by(site.var) == left
