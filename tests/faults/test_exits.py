"""A tool that asks the process to exit fails its own call. The server and other people's turns go on (T1)."""

import json
import signal

import pytest

from tests.faults.bounds import PATIENT_EXIT
from tests.faults.conftest import MakeSite
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
