"""Nothing that a tool has started survives the kill -9 of the server that it worked for (G8)."""

import time

import pytest

from tests.faults import measures
from tests.faults.conftest import MakeSite
from tests.faults.processes import owned_by
from tests.support import eventually_sync

BOUND = 2.0  # seconds


@pytest.mark.timeout(120)
def test_g08_what_tools_have_started_dies_with_the_server(embedded: MakeSite):
    site = embedded()
    process = site.serve()
    client = site.client()
    plan = [
        "run sleep 301 & trap '' TERM; echo begun >begun; sleep 302",
        'call ignore {"key": "deaf"}',
    ]
    turns = [client.say(client.converse(), text) for text in plan]
    client.approve(turns[0])
    client.until_running(turns[0], "exec")
    eventually_sync(lambda: [*site.var.glob("workspaces/*/begun")])
    eventually_sync(
        lambda: any(event["type"] == "tool_progress" for event in client.events(turns[1]))
    )
    assert len(owned_by(site.var)) > 3
    process.kill()
    died_at = time.monotonic()
    eventually_sync(lambda: not owned_by(site.var), timeout=BOUND)
    measures.note("G8", "what tools have started", time.monotonic() - died_at)


@pytest.mark.timeout(120)
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
