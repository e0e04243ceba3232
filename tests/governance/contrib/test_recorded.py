"""With Django: the calls of a pydantic-ai agent are rows in the admin, under the limits that are edited there (B8)."""

import asyncio

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
from pydantic_ai import Agent
from pydantic_ai.exceptions import RunCancelled

from governance import Cancellation, CancellationToken, CancelReason, Host, registry, tool
from governance.contrib.callables import governed
from governance.contrib.pydantic_ai import Governance
from governance.db import run_in_db_thread
from governance.models import ToolCall as Row
from governance.recorder import Recorder
from governance.runtime import close_executor, get_executor
from tests.docs.pages import DOCS, python_blocks
from tests.governance.contrib.support import call, scripted, thread_name
from tests.support import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def recorded(ctx):
    return Host(observer=Recorder(group=ctx.run_id, step=ctx.run_step))


@pytest.fixture
async def executor():
    yield await get_executor()
    await close_executor()


@pytest.fixture
def known():
    """Take out of the registry what a test has put into it."""
    before = {one.name for one in registry}
    yield
    for name in {one.name for one in registry} - before:
        registry.unregister(name)


@run_in_db_thread
def rows():
    return list(Row.objects.order_by("group", "step", "call_id"))


@run_in_db_thread
def signed_in():
    admin_client = Client()
    admin_client.force_login(get_user_model().objects.create_superuser("boss"))
    return admin_client


@run_in_db_thread
def limit(admin_client, tool_name, timeout):
    """Add limits as a person does."""
    fields = {
        "tool_name": tool_name,
        "is_active": "on",
        "tool_enabled": "on",
        "note": "",
        "max_running": "",
        "timeout_ms": timeout,
        "idle_timeout_ms": "",
        "ceiling_ms": "",
        "revision": "",
    }
    added = admin_client.post(reverse("admin:governance_toolpolicy_add"), fields)
    assert added.status_code == 302, added.content.decode()


@run_in_db_thread
def listed(admin_client):
    return admin_client.get(reverse("admin:governance_toolcall_changelist")).content.decode()


async def test_every_call_is_a_row_that_the_admin_lists(executor):
    agent = Agent(capabilities=[Governance(get_executor, host=recorded)])

    @agent.tool_plain(metadata={"governance": {"concurrency": "exclusive"}})
    async def weigh(grams: float) -> dict[str, float]:
        return {"kilograms": grams / 1000}

    agent.tool_plain(thread_name)
    result = await agent.run(
        "go", model=scripted([call("weigh", "a", grams=1500)], [call("thread_name", "b")])
    )

    weighed, named = await rows()
    assert {row.group for row in (weighed, named)} == {result.run_id}
    assert {row.scope for row in (weighed, named)} == {result.conversation_id}
    assert (weighed.tool_name, weighed.status, weighed.result) == (
        "weigh",
        "succeeded",
        '{"kilograms":1.5}',
    )
    assert (weighed.input, weighed.concurrency, weighed.isolation) == (
        {"grams": 1500},
        "exclusive",
        "async",
    )
    assert (named.step, named.isolation) == (2, "thread")
    assert "weigh" in await listed(await signed_in())


async def test_an_edit_in_the_admin_is_obeyed_by_the_call_that_runs(executor, known):
    started = asyncio.Event()
    agent = Agent(capabilities=[Governance(get_executor, host=recorded)])

    @agent.tool_plain
    @tool(timeout=600)
    async def search_for_ever() -> None:
        """Never end."""
        started.set()
        await asyncio.Event().wait()

    admin_client = await signed_in()
    running = asyncio.create_task(agent.run("go", model=scripted([call("search_for_ever")])))
    await started.wait()
    await limit(admin_client, "search_for_ever", "1 s")
    result = await running

    assert "did not respond within 1s" in result.output
    [row] = await rows()
    assert (row.status, row.error_type) == ("timed_out", "timeout")
    assert (row.timeout_ms, row.timeout_source) == (1_000, "override")
    assert [change["from_ms"] for change in row.deadline_changes] == [600_000]


async def test_a_run_that_is_cancelled_leaves_no_open_row(executor):
    stop = CancellationToken()
    agent = Agent(capabilities=[Governance(get_executor, token=stop, host=recorded)])

    @agent.tool_plain
    async def hang() -> None:
        await asyncio.Event().wait()

    running = asyncio.create_task(
        agent.run("go", model=scripted([call("hang", "a"), call("hang", "b")]))
    )
    await eventually(lambda: len([one for one in executor.live if one.limits.deadline]) == 2)
    stop.cancel(Cancellation(reason=CancelReason.USER, by="Ada"))
    with pytest.raises(RunCancelled):
        await running

    assert [(row.status, row.ended_by_name) for row in await rows()] == [("cancelled", "Ada")] * 2


async def test_a_callable_is_on_record_too(executor):
    host = Host(observer=Recorder(group="report", step=3))
    assert await governed(sum, executor=get_executor, host=host, scope="ada")([1, 2, 3]) == 6

    [row] = await rows()
    assert (row.group, row.scope, row.tool_name, row.result) == ("report", "ada", "sum", "6")


async def test_the_example_of_the_page_is_on_record(executor, known):
    [example] = [
        block
        for block in python_blocks(DOCS / "howto" / "pydantic-ai.md")
        if "get_executor" in block
    ]
    names: dict = {}
    exec(example, names)
    model = scripted([call("delivery_status", order=7)])
    with names["agent"].override(model=model):
        said = await names["answer"]("Where is it?", stop=CancellationToken())

    assert said == "Order 7 is on its way."
    [row] = await rows()
    assert (row.tool_name, row.timeout_ms, row.timeout_source) == (
        "delivery_status",
        30_000,
        "tool",
    )
