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


async def test_a_turn_calls_a_tool_of_a_server_and_its_call_can_be_cancelled(chat, settings):
    settings.TURNS_CHAT_MODEL = "local"
    await add_server()
    await connected("unruly_echo")
    text = 'call unruly_echo {"text": "from the server"}\ncall unruly_deaf {}'
    turn_id = await chat.say(text)
    deaf = await chat.sink.until("tool_start", tool_name="unruly_deaf")
    await chat.sink.until("tool_result", tool_name="unruly_echo")
    await chat.cancel_call(turn_id, deaf["tool_id"])
    turn = await chat.ended(turn_id)
    assert turn.status == "completed"
    by_name = {call.tool_name: call for call in (await chat.calls(turn_id)).values()}
    assert by_name["unruly_echo"].result == "from the server"
    assert by_name["unruly_deaf"].disposition == "indeterminate"
    assert by_name["unruly_deaf"].ended_by_reason == "user"
    settled = await chat.sink.until("tool_settled", tool_id=deaf["tool_id"])
    assert settled["kind"] == "returned", "the server has answered after all"


async def test_a_server_that_does_not_start_is_no_obstacle_to_a_turn(chat, settings):
    settings.TURNS_CHAT_MODEL = "local"
    await add_server("dies")
    turn = await chat.run("say hello")
    assert turn.status == "completed"
