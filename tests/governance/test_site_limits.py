"""Which limits of the settings count is written once, at the start of a process."""

import logging

import pytest

from governance import services
from governance.core.calls import ToolCall
from governance.db import run_in_db_thread
from governance.runtime import close_executor, get_executor


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("probe", "plain")
async def test_a_process_says_at_its_start_what_the_limits_of_the_settings_change(settings, caplog):
    caplog.set_level(logging.INFO, "governance")
    settings.GOVERNANCE_TOOL_TIMEOUTS = {"probe": 45, "plain": 0, "exec": 30, "later": 5}
    await set_limit("exec", 20_000)
    executor = await get_executor()
    try:
        await get_executor()
        outcome = await executor.run(ToolCall(id="1", tool_name="probe"))
    finally:
        await close_executor()
    [line] = [message for message in caplog.messages if "GOVERNANCE_TOOL_TIMEOUTS" in message]
    assert line == (
        "Limits of GOVERNANCE_TOOL_TIMEOUTS: exec 30 s (without effect: an administrator's limit takes precedence);"
        " later 5 s (no tool of this name is known yet); plain no limit; probe 45 s (the tool declares 50 s)"
    )
    assert (outcome.timeout, outcome.timeout_source) == (45, "setting")


@pytest.mark.django_db(transaction=True)
async def test_without_such_limits_it_says_nothing(caplog):
    caplog.set_level(logging.INFO, "governance")
    await get_executor()
    await close_executor()
    assert "GOVERNANCE_TOOL_TIMEOUTS" not in caplog.text


async def set_limit(tool_name, timeout_ms):
    save = run_in_db_thread(services.save_tool_policy)
    await save(tool_name=tool_name, values={"timeout_ms": timeout_ms}, by=None)
