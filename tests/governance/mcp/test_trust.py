"""A server's word that a tool only reads. It counts where an administrator said so, and never for more than was seen (G1)."""

from dataclasses import replace

import pytest

from governance import ToolCall, ToolExecutor
from governance.core.calls import ErrorType
from tests.governance.mcp.support import address, unruly
from tests.support import eventually


async def asks(harness, name, **arguments):
    """Whether a person must let the call through: here, nobody can be asked."""
    executor = ToolExecutor(registry=harness.registry)
    call = ToolCall(id="1", tool_name=name, scope="scope", input=arguments)
    outcome = await executor.run(call)
    await executor.aclose()
    return outcome.error_type is ErrorType.NO_APPROVER


async def test_the_word_of_a_command_counts_only_where_it_is_trusted(harness):
    await harness.begin(unruly("harmless"))
    assert await asks(harness, "unruly_echo", text="hello")
    harness.tools.apply([unruly("harmless", read_only_tools=frozenset({"echo"}))])
    assert not await asks(harness, "unruly_echo", text="hello")
    assert await asks(harness, "unruly_steps")


async def test_the_word_of_an_address_counts_only_where_it_is_trusted(harness, everything_url):
    spec = address("all", everything_url)
    connection = await harness.begin(spec)
    assert await asks(harness, "all_echo", message="hello")
    harness.tools.apply([replace(spec, read_only_tools=None)])
    assert not await asks(harness, "all_echo", message="hello")
    assert connection.starts == 1  # another answer to that needs no other connection


@pytest.mark.parametrize("believed", [None, frozenset({"echo", "rename"})])
async def test_what_is_called_read_only_later_is_asked_about(harness, believed):
    await harness.begin(unruly("harmless", read_only_tools=believed))
    assert (await harness.run("unruly_rename")).result == "renamed"
    await eventually(lambda: harness.names() == ["unruly_echo", "unruly_renamed"])
    assert await asks(harness, "unruly_renamed")
    assert not await asks(harness, "unruly_echo", text="hello")


async def test_what_is_trusted_but_not_called_read_only_is_asked_about(harness):
    await harness.begin(unruly(read_only_tools=frozenset({"echo"})))
    assert await asks(harness, "unruly_echo", text="hello")
