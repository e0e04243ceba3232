"""An MCP server's tool in a turn: offered to the chat model, called, cancelled by its button (G2, C3)."""

import sys

import pytest

from governance import registry
from governance.db import run_in_db_thread
from governance.models import McpServer
from governance.runtime import prepare_tools
from tests.governance.mcp.support import HERE
from tests.support import PATIENCE, eventually

pytestmark = pytest.mark.django_db(transaction=True)


@run_in_db_thread
def add_server(*habits):
    program = f"{sys.executable} {HERE / 'unruly_server.py'} {' '.join(habits)}"
    McpServer.objects.create(name="unruly", command=program)


async def connected(tool_name):
    """Wait until the server has named its tools: a turn begins without those of a server that takes its time."""
    await prepare_tools()
    await eventually(lambda: tool_name in registry, timeout=PATIENCE)


async def test_a_turn_calls_a_tool_of_a_server_and_its_call_can_be_cancelled(stage, settings):
    settings.TURNS_CHAT_MODEL = "local"
    await add_server()
    await connected("unruly_echo")
    text = 'call unruly_echo {"text": "from the server"}\ncall unruly_deaf {}'
    turn_id = await stage.say(text)
    deaf = await stage.listener.until("tool_start", tool_name="unruly_deaf")
    await stage.listener.until("tool_result", tool_name="unruly_echo")
    await stage.cancel_call(turn_id, deaf["tool_id"])
    turn = await stage.ended(turn_id)
    assert turn.status == "completed"
    by_name = {call.tool_name: call for call in (await stage.calls(turn_id)).values()}
    assert by_name["unruly_echo"].result == "from the server"
    assert by_name["unruly_deaf"].disposition == "indeterminate"
    assert by_name["unruly_deaf"].ended_by_reason == "user"
    settled = await stage.listener.until("tool_settled", tool_id=deaf["tool_id"])
    assert settled["kind"] == "returned", "the server has answered after all"


async def test_a_server_that_does_not_start_is_no_obstacle_to_a_turn(stage, settings):
    settings.TURNS_CHAT_MODEL = "local"
    await add_server("dies")
    turn = await stage.run("say hello")
    assert turn.status == "completed"
