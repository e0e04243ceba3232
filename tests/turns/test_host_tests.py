"""What `turns.testing.hosts` offers the tests of a project, here in the tests of our own."""

import asyncio
import time

import pytest
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.test import TestCase, override_settings

from governance import ToolContext, make_tool, registry
from governance.models import ToolCall
from turns.models import Agent, Conversation
from turns.testing import call, text
from turns.testing.hosts import arun_turn, one_database_thread, run_turn


async def name_group(name: str) -> str:
    """Make a group in a coroutine."""
    await Group.objects.acreate(name=name)
    return f"{await Group.objects.acount()} groups"


def name_group_plainly(name: str) -> str:
    """Make a group in a plain function."""
    Group.objects.create(name=name)
    return f"{Group.objects.count()} groups"


async def name_group_in_thread(name: str) -> str:
    """Make a group in what a coroutine hands to a thread."""
    return await asyncio.to_thread(name_group_plainly, name)


async def sleep_long(context: ToolContext) -> str:
    """Sleep in a coroutine."""
    context.progress("asleep")
    await asyncio.sleep(600)
    return "awake"


def sleep_and_listen(context: ToolContext) -> str:
    """Sleep in a plain function, until the call is over."""
    while not context.is_cancelled:
        time.sleep(0.01)
    return "awake"


TOOLS = {
    "name_group": make_tool(name_group),
    "name_group_plainly": make_tool(name_group_plainly),
    "name_group_in_thread": make_tool(name_group_in_thread),
    "name_group_in_process": make_tool(
        name_group_plainly, name="name_group_in_process", isolation="process"
    ),
    "sleep_long": make_tool(sleep_long),
    "sleep_and_listen": make_tool(sleep_and_listen),
}


@pytest.fixture(autouse=True)
def tools():
    for tool in TOOLS.values():
        registry.register(tool)
    yield
    for name in TOOLS:
        registry.unregister(name)


@pytest.mark.django_db
@pytest.mark.parametrize("name", [name for name in TOOLS if name.startswith("name_group")])
def test_a_test_in_a_transaction_and_its_tools_see_each_others_rows(name):
    ada = User.objects.create_user("ada")
    before = Group.objects.count()
    turn = run_turn([call("c1", name, name="Gardeners")], [text("Done.")], user=ada)
    assert (turn.status, turn.answer) == ("completed", "Done.")
    assert [(c.status, c.result) for c in turn.calls] == [("succeeded", f"{before + 1} groups")]
    assert Group.objects.filter(name="Gardeners").exists()
    assert ToolCall.objects.get(group=str(turn.id)).status == "succeeded"
    assert transaction.get_connection().in_atomic_block


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["sleep_long", "sleep_and_listen"])
def test_a_limit_ends_a_call_in_a_transaction(name):
    ada = User.objects.create_user("ada")
    with override_settings(GOVERNANCE_TOOL_TIMEOUTS={name: 0.2}):
        turn = run_turn([call("c1", name)], [text("It took too long.")], user=ada)
    assert (turn.status, turn.calls[0].status) == ("completed", "timed_out")


@pytest.mark.django_db
@pytest.mark.parametrize("event", ["tool_start", "tool_progress"])
def test_a_cancel_ends_a_turn_in_a_transaction(event):
    ada = User.objects.create_user("ada")
    turn = run_turn([call("c1", "sleep_long")], user=ada, cancel_on=event)
    assert (turn.status, turn.calls[0].status) == ("cancelled", "cancelled")


@pytest.mark.django_db
def test_a_cancel_that_could_never_come_is_refused_with_a_sentence():
    ada = User.objects.create_user("ada")
    with pytest.raises(ValueError, match="'sleep_and_listen' is a plain function"):
        run_turn([call("c1", "sleep_and_listen")], user=ada, cancel_on="tool_start")
    assert not Conversation.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_without_a_transaction_a_plain_function_hears_of_a_cancel_too():
    ada = User.objects.create_user("ada")
    turn = run_turn([call("c1", "sleep_and_listen")], user=ada, cancel_on="tool_start")
    assert turn.status == "cancelled"


@pytest.mark.django_db(transaction=True)
async def test_an_asynchronous_test_waits_for_the_turn():
    ada = await User.objects.acreate_user("ada")
    turn = await arun_turn([call("c1", "name_group", name="Gardeners")], [text("Done.")], user=ada)
    assert turn.calls[0].status == "succeeded"
    assert await Group.objects.filter(name="Gardeners").aexists()


@pytest.mark.django_db(transaction=True)
async def test_the_switch_says_where_no_thread_waits():
    ada = await User.objects.acreate_user("ada")
    with one_database_thread(), pytest.raises(RuntimeError, match="No thread waits"):
        await arun_turn([text("Done.")], user=ada)


@pytest.mark.django_db
def test_neither_the_agents_own_model_nor_a_runner_is_needed(settings):
    settings.TURNS_DISPATCHER = "runners"
    ada = User.objects.create_user("ada")
    Agent.objects.create(name="florist", chat_model="anthropic:claude-sonnet-5-5")
    turn = run_turn([text("Tulips.")], user=ada, agent="florist")
    assert (turn.status, turn.answer) == ("completed", "Tulips.")


@pytest.mark.django_db
def test_a_script_that_is_too_short_fails_the_test():
    ada = User.objects.create_user("ada")
    with pytest.raises(AssertionError, match="received 2 requests but has only 1 replies"):
        run_turn([call("c1", "name_group", name="Gardeners")], user=ada)


@pytest.mark.django_db
def test_a_conversation_goes_on_and_its_questions_are_decided():
    ada = User.objects.create_user("ada")
    group = [call("c1", "name_group", name="Gardeners")]
    with override_settings(GOVERNANCE_APPROVAL={"name_group": "always"}):
        first = run_turn(group, [text("Done.")], user=ada)
        second = run_turn(
            group,
            [text("Then not.")],
            user=ada,
            conversation_id=first.conversation_id,
            approve=False,
        )
    assert [first.calls[0].status, second.calls[0].status] == ["succeeded", "denied"]
    assert Conversation.objects.get().pk == first.conversation_id


class AsynchronousTest(TestCase):
    """The asynchronous tests of Django's runner."""

    async def test_sees_the_rows_of_its_tools(self):
        ada = await User.objects.acreate_user("ada")
        turn = await arun_turn(
            [call("c1", "name_group_plainly", name="Gardeners")], [text("Done.")], user=ada
        )
        assert turn.calls[0].status == "succeeded"
        assert await Group.objects.filter(name="Gardeners").aexists()
