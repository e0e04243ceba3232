"""A host that hangs in Django's thread and in the loop's executor keeps nobody from the chat (invariant 8)."""

import signal
import time

import pytest

from tests.faults.cluster import start_scaled
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.support import with_room
from turns.running import draining

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(params=["embedded", "scaled"])
def site(request: pytest.FixtureRequest) -> Site:
    """Return a site of one process, or with a runner, in all of whose processes the host's threads hang."""
    make: MakeSite = request.getfixturevalue(request.param)
    site = make()
    if request.param == "scaled":
        start_scaled(site, runners=1)
    else:
        site.serve()
    client = site.client()
    turn = client.say(client.converse(), "call fill_host_threads")
    assert client.until_ended(turn)["status"] == "completed"
    if request.param == "scaled":  # the tool has filled those of the runner
        assert client.get("/fill-host-threads/").text == "filled"
    return site


def test_people_work_and_processes_end_although_the_host_hangs(site: Site):
    client = site.client()
    began_at = time.monotonic()
    administrator = site.administrator()
    assert "Turnkeeper" in administrator.read("/admin/")
    conversation = client.converse()
    watcher = site.watch(conversation)
    watcher.until("snapshot")
    turn_id = client.say(conversation, 'call affect {"key": "a", "seconds": 600}')
    client.until_running(turn_id, "affect")
    [call] = client.turn(turn_id)["calls"]
    limit = f"/api/turns/{turn_id}/tools/{call['tool_id']}/deadline"
    assert client.post(limit, {"timeout_ms": 90_000}).json()["timeout_ms"] == 90_000
    watcher.until("tool_deadline", turn_id=turn_id, timeout_ms=90_000)
    assert client.cancel(turn_id).status_code == 200
    assert client.until_ended(turn_id)["status"] == "cancelled"
    watcher.until("turn_end", turn_id=turn_id)
    asked = client.say(conversation, "run true")
    client.approve(asked)
    assert client.until_ended(asked)["status"] == "completed"
    limited = client.say(conversation, 'within 1s call affect {"key": "b", "seconds": 600}')
    assert client.until_ended(limited)["calls"][0]["status"] == "timed_out"
    assert client.attach("notes.txt", b"written meanwhile")
    assert client.get(f"/api/conversations/{conversation}/export").status_code == 200
    assert time.monotonic() - began_at < with_room(12)

    for process in site.processes.values():
        process.signal(signal.SIGTERM)
    # Python waits for the host's threads at its end. The exit guard does not, nor does uvicorn.
    codes = {process.wait(within=with_room(12)) for process in site.processes.values()}
    assert codes <= {draining.EXIT_UNCLEAN, -signal.SIGTERM}
