"""The users of a program without Django: an id alone, or those that its executor is given."""

import asyncio
from typing import Any

from governance import (
    Host,
    Limits,
    ToolCall,
    ToolContext,
    ToolExecutor,
    ToolRegistry,
    make_tool,
    tool,
)
from tests.governance.core.support import until

tools = ToolRegistry()


@tool(register=tools)
async def whose(context: ToolContext) -> Any:
    """Say for whom the call works."""
    return await context.user()


@tool(register=tools, permission="shop.refund_order")
async def refund() -> str:
    """Give the money back."""
    return "refunded"


class OwnUsers:
    """Users that are a dictionary."""

    names = {5: "ada"}

    def typed(self, user_id: Any) -> Any:
        """Return the id."""
        return user_id

    async def find(self, user_id: Any) -> Any:
        """Return the name."""
        return self.find_blocking(user_id)

    def find_blocking(self, user_id: Any) -> Any:
        """Return the name."""
        return self.names.get(user_id)

    async def has_permission(self, user_id: Any, permission: str) -> bool:
        """Let ada do this."""
        return (self.names.get(user_id), permission) == ("ada", "shop.refund_order")


async def run(executor: ToolExecutor, name: str, user_id: Any) -> tuple[str, Any]:
    done = await executor.run(ToolCall(id="1", tool_name=name), host=Host(user_id=user_id))
    await executor.aclose()
    return done.error_type or done.status, done.result


async def test_without_users_nobody_is_found_and_nobody_has_a_permission():
    kind, said = await run(ToolExecutor(registry=tools), "whose", 5)
    assert kind == "execution_error"
    assert "LookupError" in said
    assert await run(ToolExecutor(registry=tools), "whose", None) == ("succeeded", "Done.")
    assert (await run(ToolExecutor(registry=tools), "refund", 5))[0] == "forbidden"


async def test_an_executor_may_have_users_of_its_own():
    def executor() -> ToolExecutor:
        return ToolExecutor(registry=tools, users=OwnUsers())

    assert await run(executor(), "whose", 5) == ("succeeded", "ada")
    assert (await run(executor(), "refund", 6))[0] == "forbidden"
    assert await run(executor(), "refund", 5) == ("succeeded", "refunded")


async def test_a_permission_that_is_lost_while_the_call_waits_counts():
    users = OwnUsers()
    users.names = dict(users.names)
    executor = ToolExecutor(registry=tools, users=users, limits=Limits(max_running=1))
    is_begun, may_end = asyncio.Event(), asyncio.Event()

    async def busy() -> None:
        is_begun.set()
        await may_end.wait()

    first = executor.prepare(ToolCall(id="0", tool_name="busy"), tool=make_tool(busy))
    running = asyncio.create_task(executor.execute(first))
    await is_begun.wait()
    waiting = asyncio.create_task(run(executor, "refund", 5))
    await until(lambda: executor.limiter.queued == 1)
    users.names.clear()
    may_end.set()
    assert (await waiting)[0] == "forbidden"
    await running
