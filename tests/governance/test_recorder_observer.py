"""The recorder as the executor's observer: real tools, real rows, no turns (B8)."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from governance import services
from governance.core.approvals import Decision, Verdict
from governance.core.calls import CallStatus, ToolCall
from governance.core.cancel_reasons import CancelReason, CancelSource
from governance.core.cancellation import Cancellation
from governance.core.exceptions import IllegalTransition
from governance.core.executor import Host, Timing, ToolExecutor
from governance.core.policy import ApprovalRule
from governance.core.registry import ToolRegistry, tool
from governance.core.tools import ToolContext
from governance.db import run_in_db_thread
from governance.models import ToolCall as Row
from governance.models import ToolPolicy
from governance.policies import DatabasePolicySource
from governance.recorder import Recorder
from tests.support import LONG_PATIENCE, eventually

pytestmark = pytest.mark.django_db(transaction=True)


class RecorderHarness:
    """An executor with three tools, and the events that steer them."""

    def __init__(self, policies):
        self.tools = ToolRegistry()
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        harness = self

        @tool(register=self.tools, timeout=30)
        async def wait(context: ToolContext) -> str:
            """Wait for the release."""
            context.progress("waiting", progress=1, total=2)
            harness.started.set()
            await harness.release.wait()
            return "released"

        @tool(register=self.tools, timeout=0.05)
        async def stubborn(context: ToolContext) -> str:
            """Ignore every cancellation until the release."""
            while not harness.release.is_set():
                try:
                    await harness.release.wait()
                except asyncio.CancelledError:
                    continue
            return "too late"

        @tool(register=self.tools)
        async def echo(text: str) -> str:
            """Return the text."""
            return text

        timing = Timing(cancel_grace=0.05, notice_interval=0.01)
        self.executor = ToolExecutor(registry=self.tools, policies=policies, timing=timing)
        self.host = Host(observer=Recorder(group="turn"))

    def run(self, tool_name, call_id="a", **arguments):
        call = ToolCall(id=call_id, tool_name=tool_name, input=arguments, scope="conversation")
        return self.executor.run(call, host=self.host)

    def live(self):
        return next(iter(self.executor.live))


@run_in_db_thread
def row(call_id="a"):
    return Row.objects.filter(call_id=call_id).first()


@pytest.fixture
async def source():
    source = DatabasePolicySource()
    await source.aload()
    return source


@pytest.fixture
async def harness(source):
    harness = RecorderHarness(source)
    yield harness
    harness.release.set()
    await harness.executor.aclose()


async def test_a_call_that_succeeds_is_on_record(harness):
    outcome = await harness.run("echo", text="hello")
    stored = await row()
    assert (
        (stored.status, stored.result) == (outcome.status, outcome.result) == ("succeeded", "hello")
    )
    assert (stored.timeout_ms, stored.timeout_source) == (120_000, "built_in")
    assert (stored.group, stored.scope, stored.input) == ("turn", "conversation", {"text": "hello"})
    assert stored.started_at <= stored.ended_at


async def test_the_row_is_running_with_its_progress_before_the_body_ends(harness):
    running = asyncio.create_task(harness.run("wait"))
    await harness.started.wait()
    assert (await row()).status == "running"

    async def progress():
        return (await row()).progress

    assert await eventually(progress) == {"message": "waiting", "progress": 1, "total": 2}
    harness.release.set()
    assert (await running).status is CallStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("tool_name", "arguments", "error_type"),
    [
        ("nothing", {}, "unknown_tool"),
        ("echo", {}, "invalid_input"),
        ("echo", {"text": "x", "y": 1}, "invalid_input"),
    ],
)
async def test_a_call_that_never_starts_is_on_record(harness, tool_name, arguments, error_type):
    await harness.run(tool_name, **arguments)
    stored = await row()
    assert (stored.status, stored.error_type, stored.disposition) == (
        "failed",
        error_type,
        "not_started",
    )
    assert (stored.started_at, stored.duration_ms) == (None, None)


async def test_a_cancel_is_on_record_with_who_and_how(harness):
    running = asyncio.create_task(harness.run("wait"))
    await harness.started.wait()
    harness.live().cancel(
        Cancellation(reason=CancelReason.USER, source=CancelSource.BUTTON, by="ann")
    )
    await running
    stored = await row()
    assert (stored.status, stored.error_type, stored.disposition) == (
        "cancelled",
        "cancelled",
        "settled",
    )
    assert (stored.ended_by_reason, stored.ended_by_source, stored.ended_by_name) == (
        "user",
        "button",
        "ann",
    )


async def test_a_timeout_that_nobody_heard_is_abandoned_and_its_late_result_kept_apart(harness):
    outcome = await harness.run("stubborn")
    stored = await row()
    assert (stored.status, stored.error_type, stored.disposition) == (
        "abandoned",
        "timeout",
        "indeterminate",
    )
    harness.release.set()

    async def late():
        return (await row()).late_kind

    assert await eventually(late) == "returned"
    stored = await row()
    assert (stored.late_text, stored.result, stored.status) == (
        "too late",
        outcome.result,
        "abandoned",
    )


async def test_a_limit_edited_while_the_call_runs_is_obeyed_and_on_record(harness, source):
    loop = asyncio.get_running_loop()
    source.on_change(lambda: loop.call_soon_threadsafe(harness.executor.apply_policies))
    await run_in_db_thread(ToolPolicy.objects.create)(tool_name="wait")
    save = run_in_db_thread(services.save_tool_policy)
    running = asyncio.create_task(harness.run("wait"))
    await harness.started.wait()
    await save(tool_name="wait", values={"timeout_ms": 20_000}, by=None)

    async def changes():
        return (await row()).deadline_changes

    change = (await eventually(changes))[0]
    assert (change["from_ms"], change["to_ms"], change["source"]) == (30_000, 20_000, "override")
    assert ((await row()).timeout_ms, harness.live().timeout) == (20_000, 20)
    await save(tool_name="wait", values={"timeout_ms": 1}, by=None)
    assert (await running).status is CallStatus.TIMED_OUT
    stored = await row()
    assert (stored.timeout_ms, stored.timeout_source, len(stored.deadline_changes)) == (
        1,
        "override",
        2,
    )


async def test_a_call_id_that_has_ended_in_its_group_never_runs_again(harness):
    await harness.run("echo", text="first")
    with pytest.raises(IllegalTransition):
        await harness.run("echo", text="second")
    assert (await row()).result == "first"


def test_the_executor_imports_without_django():
    program = (
        "import sys, governance, governance.core.executor, governance.core.invokers.thread,"
        " governance.core.invokers.process; found = {name.split('.')[0] for name in sys.modules};"
        " sys.exit(repr(found & {'django', 'asgiref', 'channels'}) if found & {'django', 'asgiref', 'channels'} else 0)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=LONG_PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")


class FakeApprover:
    """An approver who answers at once, as one may who asks elsewhere."""

    def __init__(self, verdict):
        self.verdict = verdict

    async def ask(self, call):
        return Decision(verdict=self.verdict, by="clerk")

    async def conclude(self, call, decision):
        return decision


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verdict.APPROVED, "succeeded"),
        (Verdict.DENIED, "denied"),
        (Verdict.EXPIRED, "expired"),
        (Verdict.CANCELLED, "cancelled"),
        (None, "failed"),
    ],
)
async def test_what_a_host_of_its_own_decides_is_on_record(harness, verdict, status):
    approver = None if verdict is None else FakeApprover(verdict)
    harness.host = Host(
        observer=Recorder(group="turn"), approver=approver, approval=ApprovalRule.ALWAYS
    )
    outcome = await harness.run("echo", text="hello")
    stored = await row()
    assert stored.status == outcome.status == status
    assert (stored.disposition == "not_started") is (status != "succeeded")
