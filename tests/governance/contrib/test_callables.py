"""Any callable under the rules of tools: its value comes back, or one of a few exceptions (B8)."""

import asyncio
import functools
import inspect
import os
import threading

import pytest

from governance import (
    ApprovalExpired,
    ApprovalUnavailable,
    Cancellation,
    CancellationToken,
    Cancelled,
    CancelReason,
    Decision,
    Host,
    InvalidToolInput,
    PolicyLevels,
    QueueFull,
    ToolCallDenied,
    ToolContext,
    ToolDisabled,
    ToolExecutionError,
    ToolFailed,
    ToolLimits,
    ToolTimeoutError,
    Unobserved,
    Verdict,
)
from governance.contrib.callables import governed
from governance.contrib.execution import tool_context
from governance.core.limiter import Limits
from tests.governance.contrib.support import double, make_executor, spin, thread_name
from tests.support import cancel, eventually

BY_ADA = Cancellation(reason=CancelReason.USER, by="ada")


@pytest.fixture
async def executor():
    made = make_executor()
    yield made
    await made.aclose()


@pytest.fixture
async def with_processes():
    made = make_executor(processes=True)
    yield made
    await made.aclose()


class Endings(Unobserved):
    """Remembers the outcomes."""

    def __init__(self):
        self.seen = []

    async def call_ended(self, call, outcome):
        self.seen.append((call, outcome))


class Greeter:
    async def __call__(self, name):
        return f"hello {name}"

    def greet(self, name):
        return f"good day {name}"


async def hang():
    await asyncio.Event().wait()


async def test_the_very_object_comes_back(executor):
    handle = object()

    async def fetch(url, *, retries=0):
        return handle, url, retries

    assert await governed(fetch, executor=executor)("http://x", retries=2) == (
        handle,
        "http://x",
        2,
    )


async def test_without_an_executor_there_is_one_for_the_loop():
    assert await governed(double)(4) == 8
    assert await governed(thread_name)() != threading.current_thread().name


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (Greeter(), "hello ada"),
        (Greeter().greet, "good day ada"),
        (functools.partial(Greeter().greet), "good day ada"),
        (lambda name: name.upper(), "ADA"),
    ],
)
async def test_whatever_can_be_called_can_be_governed(executor, function, said):
    assert await governed(function, executor=executor, name="greet")("ada") == said


async def test_bytes_and_values_without_a_text_are_no_failure(executor):
    endings = Endings()
    loop_of_itself = []
    loop_of_itself.append(loop_of_itself)
    for value in (b"\xff", loop_of_itself, None):

        async def give(value=value):
            return value

        run = governed(give, executor=executor, host=Host(observer=endings))
        assert await run() is value
    assert [outcome.status for _, outcome in endings.seen] == ["succeeded"] * 3


async def test_an_own_exception_is_the_cause(executor):
    def fail():
        raise KeyError("secret")

    with pytest.raises(ToolExecutionError) as raised:
        await governed(fail, executor=executor)()
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.original_error is raised.value.__cause__
    assert "secret" not in str(raised.value)


async def test_a_sentence_for_the_model_stays_what_it_is(executor):
    async def fail():
        raise ToolFailed("There is no such order.")

    with pytest.raises(ToolFailed, match="no such order"):
        await governed(fail, executor=executor)()


async def test_too_long_is_a_timeout_error_with_the_limit(executor):
    with pytest.raises(ToolTimeoutError) as raised:
        await governed(hang, executor=executor, timeout=0.05)()
    assert (raised.value.tool_name, raised.value.timeout) == ("hang", 0.05)


async def test_a_thread_that_does_not_listen_is_a_timeout_too(executor):
    release = threading.Event()
    try:
        with pytest.raises(ToolTimeoutError):
            await governed(release.wait, executor=executor, timeout=0.05)(30)
    finally:
        release.set()
    await eventually(lambda: executor.abandoned == 0)


async def test_its_own_argument_may_be_the_limit(executor):
    async def search(words, wait_ms=20):
        await asyncio.Event().wait()

    run = governed(search, executor=executor, timeout_argument="wait_ms")
    with pytest.raises(ToolTimeoutError) as by_default:
        await run("a")
    with pytest.raises(ToolTimeoutError) as asked:
        await run("a", wait_ms=30)
    assert (by_default.value.timeout, asked.value.timeout) == (0.02, 0.03)


async def test_a_token_cancels_every_call(executor):
    token = CancellationToken()
    run = governed(hang, executor=executor, token=token)
    running = [asyncio.create_task(run()) for _ in range(3)]
    await eventually(lambda: len([live for live in executor.live if live.limits.deadline]) == 3)
    token.cancel(BY_ADA)
    for ended in await asyncio.gather(*running, return_exceptions=True):
        assert isinstance(ended, Cancelled)
        assert ended.cancellation.by == "ada"
    with pytest.raises(Cancelled):
        await run()


async def test_one_call_can_be_cancelled_by_itself(executor):
    running = asyncio.create_task(governed(hang, executor=executor)())
    await eventually(lambda: any(live.limits.deadline for live in executor.live))
    [live] = executor.live
    live.cancel(BY_ADA)
    with pytest.raises(Cancelled):
        await running


async def test_a_surrounding_task_that_is_cancelled_leaves_one_outcome_behind(executor):
    endings = Endings()
    run = governed(hang, executor=executor, host=Host(observer=endings))
    running = asyncio.create_task(run())
    await eventually(lambda: any(live.limits.deadline for live in executor.live))
    await cancel(running)
    [(_, outcome)] = endings.seen
    assert (outcome.status, outcome.ended_by.reason) == ("cancelled", "parent")
    assert not list(executor.live)


async def test_what_a_policy_says_counts():
    class Policies:
        timeout = None
        enabled = True

        def levels(self, tool):
            override = ToolLimits(timeout=self.timeout, enabled=self.enabled)
            return PolicyLevels(override=override, declared=tool.limits)

    policies = Policies()
    executor = make_executor(policies=policies)
    running = asyncio.create_task(governed(hang, executor=executor, timeout=60)())
    await eventually(lambda: any(live.limits.deadline for live in executor.live))
    policies.timeout = 0.01
    executor.apply_policies()
    with pytest.raises(ToolTimeoutError):
        await running
    policies.enabled = False
    with pytest.raises(ToolDisabled):
        await governed(hang, executor=executor)()


async def test_a_full_queue_says_so():
    executor = make_executor(limits=Limits(max_running=1, max_queued=0))
    run = governed(hang, executor=executor)
    first = asyncio.create_task(run())
    await eventually(lambda: any(live.limits.deadline for live in executor.live))
    with pytest.raises(QueueFull):
        await run()
    await cancel(first)


async def test_a_newer_call_supersedes_the_older_one(executor):
    release = asyncio.Event()
    run = governed(release.wait, executor=executor, scope="ada", concurrency="supersede")
    first = asyncio.create_task(run())
    await eventually(lambda: any(live.limits.deadline for live in executor.live))
    second = asyncio.create_task(run())
    with pytest.raises(Cancelled) as raised:
        await first
    assert raised.value.cancellation.reason is CancelReason.SUPERSEDED
    release.set()
    assert await second is True


async def test_the_context_is_filled_in_or_asked_for(executor):
    endings = Endings()

    async def work(context: ToolContext, pages: int):
        context.progress("begun", progress=1, total=pages)
        return context.tool_name, tool_context() is context

    run = governed(work, executor=executor, host=Host(observer=endings))
    assert await run(3) == ("work", True)
    [(call, _)] = endings.seen
    assert (call.last_progress.message, call.last_progress.total) == ("begun", 3)
    assert call.call.input == {"pages": 3}
    with pytest.raises(LookupError):
        tool_context()


async def test_a_wrong_call_is_a_type_error_and_starts_nothing(executor):
    with pytest.raises(TypeError, match="number"):
        await governed(double, executor=executor)()
    assert not list(executor.live)


async def test_a_process_runs_it_elsewhere_and_checks_what_crosses(with_processes):
    run = governed(double, executor=with_processes, isolation="process")
    assert await run(21) == 42
    assert await governed(os.getpid, executor=with_processes, isolation="process")() != os.getpid()
    with pytest.raises(InvalidToolInput, match="number"):
        await run("many")


async def test_what_never_listens_ends_in_a_process(with_processes):
    with pytest.raises(ToolTimeoutError):
        await governed(spin, executor=with_processes, isolation="process", timeout=0.1)()
    assert with_processes.abandoned == 0


async def test_the_executor_may_come_from_a_function(executor):
    async def get_executor():
        return executor

    assert await governed(double, executor=get_executor)(1) == 2


def test_it_looks_like_what_it_wraps():
    async def work(context: ToolContext, pages: int) -> None:
        """Work."""

    run = governed(work)
    assert (run.__name__, run.__doc__) == ("work", "Work.")
    assert list(inspect.signature(run).parameters) == ["pages"]


class FakeApprover:
    """An approver who answers at once."""

    def __init__(self, verdict):
        self.verdict = verdict

    async def ask(self, call):
        return Decision(verdict=self.verdict, reason="not now")

    async def conclude(self, call, decision):
        return decision


async def test_a_person_may_be_asked_where_the_host_gives_a_way(executor):
    def guarded(verdict):
        host = Host(approver=FakeApprover(verdict))
        return governed(double, executor=executor, host=host, approval="always")

    assert await guarded(Verdict.APPROVED)(2) == 4
    with pytest.raises(ToolCallDenied, match="not now"):
        await guarded(Verdict.DENIED)(2)
    with pytest.raises(ApprovalExpired):
        await guarded(Verdict.EXPIRED)(2)
    with pytest.raises(ApprovalUnavailable):
        await governed(double, executor=executor, approval="always")(2)


async def test_a_programs_own_texts_are_passed_as_they_are_and_recorded_readably():
    """Names of files may hold halves of characters, and nobody but the program has written them."""
    seen = []

    async def note(name: str) -> None:
        seen.append(name)

    endings = Endings()
    await governed(note, host=Host(observer=endings))("file\udcff\0")
    [(call, _)] = endings.seen
    assert seen == ["file\udcff\0"]
    assert call.call.input == {"name": "file?\ufffd"}


async def break_down():
    raise OSError("the disk is full")


async def refuse():
    raise ToolFailed("Read at most 5 lines")


@pytest.mark.parametrize(
    ("function", "declared", "words"),
    [
        (hang, {"timeout": 0.05}, "[TIMEOUT]"),
        (break_down, {}, "failed with OSError"),
        (refuse, {}, "Read at most 5 lines"),
    ],
)
async def test_with_failures_as_text_a_failed_call_returns_what_the_model_reads(
    executor, function, declared, words
):
    endings = Endings()
    run = governed(
        function, executor=executor, host=Host(observer=endings), failures="text", **declared
    )
    text = await run()
    assert words in text
    assert "_meta" not in text  # the function has no such argument
    assert [outcome.result for _call, outcome in endings.seen] == [text]


async def test_a_timeout_names_the_argument_that_asks_for_more_time(executor):
    async def hang_for(seconds: float):
        await asyncio.sleep(60)

    run = governed(hang_for, executor=executor, failures="text", timeout_argument="seconds")
    assert "ask for more time with seconds" in await run(seconds=0.05)


async def test_with_failures_as_text_a_successful_call_returns_its_own_value(executor):
    value = {"sum": 3}

    async def add():
        return value

    assert await governed(add, executor=executor, failures="text")() is value


def test_an_unknown_way_to_tell_failures_is_refused():
    with pytest.raises(ValueError, match="failures"):
        governed(hang, failures="silent")
