"""`session_status` tells a model how its calls went and how much time it has (A2)."""

import time
from dataclasses import replace
from uuid import uuid4

import pytest

from governance import (
    CallStatus,
    CancellationToken,
    Concurrency,
    Disposition,
    ErrorType,
    Host,
    LateSettlement,
    Limit,
    ToolCall,
    ToolContext,
    ToolExecutor,
    ToolOutcome,
    recorder,
    registry,
)
from governance.db import atomic, run_in_db_thread
from governance.models import ToolCall as ToolCallRow
from turns.tools.status import LISTED_CALLS, session_status

pytestmark = pytest.mark.django_db(transaction=True)

TIMED_OUT = ToolOutcome(
    status=CallStatus.TIMED_OUT,
    result="[TIMEOUT]",
    is_error=True,
    error_type=ErrorType.TIMEOUT,
    duration=5.0,
    timeout=5.0,
)
ABANDONED = ToolOutcome(
    status=CallStatus.ABANDONED,
    result="[CANCELLED]",
    is_error=True,
    error_type=ErrorType.CANCELLED,
    disposition=Disposition.INDETERMINATE,
    duration=1.5,
)
SUCCEEDED = ToolOutcome(status=CallStatus.SUCCEEDED, result="ok", duration=0.25)
FAILED = ToolOutcome(
    status=CallStatus.FAILED, result="no", is_error=True, error_type=ErrorType.EXECUTION_ERROR
)


class Conversation:
    """A scope with a turn whose calls are recorded."""

    def __init__(self):
        self.scope = str(uuid4())
        self.turn_id = str(uuid4())

    async def record(self, *calls, turn_id=None):
        await run_in_db_thread(self._record)(calls, turn_id or self.turn_id)

    def _record(self, calls, group):
        for position, (id, tool_name, outcome) in enumerate(calls):
            call = ToolCall(id=id, tool_name=tool_name, scope=self.scope, position=position)
            recorder.insert_pending([call], group=group, step=1)
            if outcome is not None:
                row = ToolCallRow.objects.filter(group=group, call_id=id)
                row.update(status=CallStatus.RUNNING, timeout_ms=5_000)
                with atomic():
                    recorder.record_end({id: outcome}, group=group)

    async def status(self, **metadata):
        context = ToolContext(
            call_id="me",
            tool_name="session_status",
            scope=self.scope,
            token=CancellationToken(),
            report=lambda _progress: None,
            metadata={"turn_id": self.turn_id, **metadata},
        )
        return await session_status(context)


@pytest.fixture
def conversation():
    return Conversation()


def test_it_is_registered_and_never_counts_as_a_loop():
    tool = registry.get("session_status")

    assert tool.loop_exempt
    assert tool.concurrency is Concurrency.PARALLEL
    assert tool.input_schema["properties"] == {}


async def test_a_first_call_finds_all_well(conversation):
    await conversation.record(("me", "session_status", None))

    assert await conversation.status() == (
        "No other tool call was made in this turn.\n"
        "Health: healthy.\n"
        "Time left in this turn: no limit."
    )


async def test_the_calls_of_the_turn_are_listed_with_status_and_time(conversation):
    await conversation.record(
        ("c1", "exec", SUCCEEDED), ("c2", "web_fetch", TIMED_OUT), ("c3", "exec", None),
        ("c4", "exec", ABANDONED), ("me", "session_status", None),
    )  # fmt: skip

    lines = (await conversation.status()).splitlines()

    assert lines[0] == "Other tool calls of this turn: 4."
    assert "- exec (c1): succeeded, 250 ms" in lines
    assert "- web_fetch (c2): timed out, 5 s, limit 5 s" in lines
    assert "- exec (c3): pending, 0 ms" in lines
    assert "- exec (c4): abandoned (cancelled), it may still be running, 1.5 s" in lines
    assert not any("(me)" in line for line in lines)


async def test_a_call_cut_by_its_idle_limit_names_that_one(conversation):
    silent = replace(TIMED_OUT, limit=Limit.IDLE, duration=1.5)
    await conversation.record(("c1", "exec", silent), ("me", "session_status", None))
    rows = ToolCallRow.objects.filter(call_id="c1")
    await run_in_db_thread(lambda: rows.update(idle_timeout_ms=1_500))()

    assert "- exec (c1): timed out, 1.5 s, idle limit 1.5 s" in await conversation.status()


async def test_a_call_that_was_given_up_and_has_ended_since_is_not_said_to_run(conversation):
    calls = [(name, "exec", ABANDONED) for name in ("c1", "c2")]
    await conversation.record(*calls, ("me", "session_status", None))
    late = LateSettlement(kind="returned", text="", after=2.0)
    settle = run_in_db_thread(recorder.record_late_settlement)
    await settle(group=conversation.turn_id, call_id="c1", late=late)
    rows = ToolCallRow.objects.filter(group=conversation.turn_id, call_id="c2")
    await run_in_db_thread(lambda: recorder.stop_watching(rows))()

    told = await conversation.status()

    assert "- exec (c1): abandoned (cancelled), it has since ended, 1.5 s" in told
    assert "- exec (c2): abandoned (cancelled), its end was not observed, 1.5 s" in told
    assert "still be running" not in told


async def test_timeouts_of_earlier_turns_count_against_the_health(conversation):
    earlier = str(uuid4())
    await conversation.record(
        ("a", "web_fetch", TIMED_OUT), ("b", "web_fetch", TIMED_OUT), turn_id=earlier
    )
    await conversation.record(("c1", "exec", ABANDONED))

    text = await conversation.status()

    assert "Timed out in this conversation: web_fetch (2×)." in text
    assert "Health: degraded: 2 timeouts, 1 abandoned, of 3 calls in this conversation." in text
    assert "(a)" not in text


async def test_a_call_that_failed_by_itself_is_no_ill_health(conversation):
    await conversation.record(("c1", "exec", FAILED), ("c2", "exec", SUCCEEDED))

    assert "Health: healthy (1 of 2 calls failed)." in await conversation.status()


async def test_another_conversation_is_not_told_of(conversation):
    await Conversation().record(("x", "exec", TIMED_OUT))

    assert "healthy." in await conversation.status()


@pytest.mark.parametrize(
    ("left", "expected"), [(90, "1 min 30 s"), (-5, "0 ms")], ids=["some", "none"]
)
async def test_the_time_left_in_the_turn(conversation, monkeypatch, left, expected):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    text = await conversation.status(turn_ends_at=time.time() + left)

    assert text.endswith(f"Time left in this turn: {expected}.")


async def test_a_long_turn_is_cut(conversation):
    await conversation.record(*((f"c{n}", "exec", SUCCEEDED) for n in range(LISTED_CALLS + 5)))

    text = await conversation.status()

    assert "… 5 earlier ones are left out …" in text
    assert text.count("- exec") == LISTED_CALLS
    assert "(c34)" in text


async def test_it_runs_through_the_executor(conversation):
    await conversation.record(("c1", "exec", SUCCEEDED))
    executor = ToolExecutor(registry=registry)
    call = ToolCall(id="me", tool_name="session_status", scope=conversation.scope)

    outcome = await executor.run(call, host=Host(metadata={"turn_id": conversation.turn_id}))
    await executor.aclose()

    assert outcome.status is CallStatus.SUCCEEDED
    assert "Other tool calls of this turn: 1." in outcome.result
    assert await ToolCallRow.objects.acount() == 1
