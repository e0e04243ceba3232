"""A tool that asks the process to exit fails its own call. The server and other people's turns go on (T1)."""

import json
import signal

import pytest

from tests.faults.bounds import PATIENT_EXIT
from tests.faults.client import Client
from tests.faults.cluster import start_scaled
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.support import PATIENCE

pytestmark = pytest.mark.timeout(600)


def test_a_tool_that_asks_to_exit_ends_nothing_but_its_call(embedded: MakeSite):
    site = embedded()
    process = site.serve(environ=PATIENT_EXIT)
    client = site.client()
    bystander = client.say(client.converse(), 'call affect {"key": "other", "seconds": 600}')
    client.until_running(bystander, "affect")
    conversation = client.converse()
    for kind in ("KeyboardInterrupt", "SystemExit"):
        for nested in (False, True):
            wanted = json.dumps({"kind": kind, "nested": nested})
            turn = client.until_ended(client.say(conversation, f"call leave {wanted}"))
            assert turn["status"] == "completed"
            [call] = turn["calls"]
            assert (call["status"], call["error_type"]) == ("failed", "execution_error")
    assert client.turn(bystander)["status"] == "running"

    assert client.cancel(bystander).status_code == 200
    client.until_ended(bystander)
    process.signal(signal.SIGINT)  # the server's own Ctrl-C stays what it is
    assert process.wait(within=PATIENCE) == 0


def leave_later(client: Client) -> None:
    """Let callbacks of tools ask to exit, beside somebody else's turn and before another one."""
    bystander = client.say(client.converse(), 'call affect {"key": "other", "seconds": 600}')
    client.until_running(bystander, "affect")
    conversation = client.converse()
    for kind in ("KeyboardInterrupt", "SystemExit"):
        turn = client.until_ended(
            client.say(conversation, f'call leave_later {{"kind": "{kind}"}}')
        )
        assert [call["status"] for call in turn["calls"]] == ["succeeded"]
    assert client.turn(bystander)["status"] == "running"
    assert client.cancel(bystander).status_code == 200
    assert client.until_ended(bystander)["status"] == "cancelled"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("start", [Site.serve, Site.serve_uvicorn])
def test_a_callback_of_a_tool_that_asks_to_exit_ends_nothing_but_itself(
    embedded: MakeSite, start, number
):
    site = embedded()
    process = start(site, environ=PATIENT_EXIT)

    leave_later(site.client())

    assert process.own_words.count("A callback of a tool raised SystemExit") == 4
    process.signal(number)  # the server's own signals stay what they are
    assert process.wait(within=PATIENCE) in {0, -signal.SIGTERM}  # uvicorn ends by a signal


def test_a_callback_of_a_tool_that_asks_to_exit_ends_no_runner(scaled: MakeSite):
    site = scaled()
    start_scaled(site, runners=1, environ=PATIENT_EXIT)
    [runner] = [process for name, process in site.processes.items() if name != "web"]

    leave_later(site.client())

    assert runner.own_words.count("A callback of a tool raised SystemExit") == 4
    runner.signal(signal.SIGINT)
    assert runner.wait(within=PATIENCE) == 0
