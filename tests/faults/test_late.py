"""A tool that blocks the event loop past its limit: timed out, whatever it returns then (T11)."""

import pytest

from tests.faults.conftest import MakeSite

pytestmark = pytest.mark.timeout(600)


def test_what_a_tool_returns_after_it_blocked_the_loop_past_its_limit_is_late(embedded: MakeSite):
    site = embedded()
    site.serve()
    client = site.client()
    turn_id = client.say(client.converse(), 'within 1s call block {"seconds": 3}')
    turn = client.until_ended(turn_id)
    assert turn["status"] == "completed"
    [call] = turn["calls"]
    assert (call["status"], call["error_type"]) == ("timed_out", "timeout")
    assert "the loop goes on" not in call["result"]
    assert call["late"]["kind"] == "returned"
    types = [event["type"] for event in client.events(turn_id)]
    assert types.count("tool_timeout") == 1
