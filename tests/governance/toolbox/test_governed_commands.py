"""Commands under the executor: limits, partial output, one outcome (acceptance 13, 46, 47, 50)."""

import asyncio
import sys
from dataclasses import replace

import pytest

from governance.core.calls import CallStatus, Disposition, ErrorType, ToolCall
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation
from governance.core.deadline import Limit
from governance.core.executor import Timing, ToolExecutor
from governance.core.policy import TimeoutSource
from governance.core.ports import Host
from tests.governance.core.process_table import runs
from tests.support import NoApprovals, eventually, pass_time, until_touched, with_room

pytestmark = [
    pytest.mark.usefixtures("_no_pipe_is_left"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


@pytest.fixture
async def governed(harness):
    """Run a command under the executor, with limits of its own."""
    patient = Timing(cancel_grace=with_room(Timing().cancel_grace))
    executor = ToolExecutor(registry=harness.registry, policies=NoApprovals(), timing=patient)

    def run(command, *, token=None, idle_timeout=None, **arguments):
        tool = harness.registry.get("exec")
        harness.registry.unregister("exec")
        harness.registry.register(replace(tool, idle_timeout=idle_timeout))
        call = ToolCall(id="call_1", tool_name="exec", input={"command": command, **arguments})
        live = executor.prepare(call, token=token)
        host = Host(workspace=harness.workspace)
        return live, asyncio.create_task(executor.execute(live, host=host))

    yield run
    await executor.aclose()


async def test_its_own_argument_is_the_limit_and_partial_output_is_in_the_result(governed):
    live, running = governed("echo $$; echo half way; sleep 600", timeout_ms=60_000)
    await eventually(lambda: "half way" in live.partial_output)
    pass_time(60)
    outcome = await running
    assert outcome.status is CallStatus.TIMED_OUT
    assert outcome.error_type is ErrorType.TIMEOUT
    assert (live.timeout, live.timeout_source) == (60.0, TimeoutSource.ARGUMENT)
    assert "half way" in outcome.result
    assert outcome.disposition is Disposition.SETTLED
    await eventually(lambda: not runs(int(live.partial_output.split()[0])))


async def test_command_that_ignores_the_request_is_gone_within_the_cancel_grace(governed):
    live, running = governed("trap '' TERM; echo $$; while :; do sleep 0.01; done")
    await eventually(lambda: live.partial_output)
    live.cancel(Cancellation(reason=CancelReason.USER))
    outcome = await running
    assert outcome.status is CallStatus.CANCELLED
    assert outcome.disposition is Disposition.SETTLED
    await eventually(lambda: not runs(int(live.partial_output.split()[0])))


async def test_output_resets_the_idle_limit(governed, workspace):
    live, running = governed("until [ -e stop ]; do echo on; sleep 0.05; done", idle_timeout=60.0)
    await eventually(lambda: live.partial_output)
    await until_touched(live)
    workspace.joinpath("stop").touch()
    outcome = await running
    assert outcome.status is CallStatus.SUCCEEDED
    assert set(outcome.result.split()) == {"on"}


async def test_silence_over_the_idle_limit_ends_it(governed):
    live, running = governed("echo begun; sleep 600", idle_timeout=60.0)
    await eventually(lambda: live.partial_output)
    pass_time(60)
    outcome = await running
    assert outcome.status is CallStatus.TIMED_OUT
    assert outcome.limit_reached is Limit.IDLE
    assert "begun" in outcome.result


async def test_exit_code_is_an_error_result(governed):
    _, running = governed("echo no; exit 3")
    outcome = await running
    assert outcome.status is CallStatus.FAILED
    assert outcome.is_error
    assert "exit code 3.\nno" in outcome.result
