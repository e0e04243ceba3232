"""What crosses to a worker process and back (T8)."""

import os

import pytest

from governance import Isolation, ToolCall, ToolExecutor, ToolRegistry, make_tool
from governance.core.exceptions import ToolFailed
from governance.core.invokers.worker_errors import CallRefused, RemoteToolError
from tests.governance.core.invokers import worker_tools
from tests.governance.core.invokers.worker_calls import TOOLS, Call, released, run
from tests.support import eventually


async def test_result_comes_back_and_each_call_has_a_process_of_its_own(make):
    invoker = make()
    assert invoker.live == 0
    assert await run(invoker, "add", a=1, b=2) == 3
    pids = {os.getpid(), await run(invoker, "pid"), await run(invoker, "pid")}
    assert len(pids) == 3


async def test_declared_tool_gets_its_types_and_its_context_by_annotation(make):
    context = {"scope": "c1", "workspace": "/work"}
    call = Call(make(), "next_day", {"day": "2025-12-31"}, facts=context)
    assert await call.task == "2026-01-01 in c1 at /work"


async def test_a_worker_without_django_knows_the_id_of_the_person_alone(make):
    assert await Call(make(), "whose", {}).task == [None, None]
    with pytest.raises(RemoteToolError) as raised:
        await Call(make(), "whose", {}, facts={"user_id": 5}).task
    assert raised.value.type_name == "LookupError"
    invoker = make(users=f"{TOOLS}:OwnUsers")
    assert await Call(invoker, "whose", {}, facts={"user_id": "5"}).task == [5, "ada"]


async def test_progress_arrives_in_order(make):
    call = Call(make(), "report", {})
    assert await call.task == "call"
    reports = [call.reports.get_nowait() for _ in range(call.reports.qsize())]
    assert [(each.message, each.progress, each.total, each.output) for each in reports] == [
        ("one", 1.0, 3.0, ""),
        ("two", 2.0, 3.0, ""),
        ("", None, None, "some text\n"),
    ]


async def test_fast_progress_is_put_together_and_no_output_is_lost(make):
    call = Call(make(), "report_fast", {"count": 20_000})
    assert await call.task == "reported"
    reports = [call.reports.get_nowait() for _ in range(call.reports.qsize())]
    assert "".join(each.output for each in reports) == "".join(
        f"{number}\n" for number in range(20_000)
    )
    assert reports[-1].message == "number 19999"
    assert len(reports) < 1_000


async def test_newest_report_arrives_while_the_tool_is_silent(make, pipe):
    call = Call(make(), "report_too_fast_then_wait", {"path": str(pipe)})
    while (await call.report()).message != "number 49":
        pass
    assert await released(call, pipe) == "released"


async def test_images_reach_the_server_whole_and_the_tool_gets_their_lines(make):
    shown = []

    async def show(content, name):
        shown.append((len(content), name))
        return f"line {len(shown)}"

    invoker = make()
    call = Call(invoker, "draw_while_a_thread_reports", {}, show=show)
    assert await call.task == ["line 1", "line 2", "line 3", "line 4"]
    assert shown == [(200_003, "image")] * 4
    assert await Call(invoker, "draw", {}, show=show).task == "line 5"


async def test_image_that_cannot_be_shown_is_a_line(make):
    invoker = make(result_limit=100_000)
    assert await run(invoker, "draw") == "[image, 6 bytes, not shown]"
    refusal = await run(invoker, "draw", size=900_000)
    assert refusal.endswith("not shown: It is too large to leave its worker process.]")
    [refusal] = await run(invoker, "draw_from_a_thread")
    assert "the thread in which it runs the tool" in refusal


async def test_prints_do_not_corrupt_the_connection_nor_flood_the_log(make, capfd):
    invoker = make()
    assert await run(invoker, "print_flood", megabytes=5) == "done"
    assert await run(invoker, "log_a_line") is True
    written = capfd.readouterr().err
    assert len(written) < 100_000
    assert "was dropped" in written
    assert "the tool has something to say" in written


async def test_exception_crosses_as_type_and_message(make):
    with pytest.raises(RemoteToolError) as raised:
        await run(make(), "raise_error", kind="value")
    assert (raised.value.type_name, raised.value.message) == ("ValueError", "secret=hunter2")
    assert "in raise_error" in raised.value.traceback
    assert "secret" not in str(raised.value)


async def test_exception_that_cannot_be_put_in_words_crosses(make):
    with pytest.raises(RemoteToolError) as raised:
        await run(make(), "raise_error", kind="unspeakable")
    assert (raised.value.type_name, raised.value.message) == ("UnspeakableError", "")


async def test_sys_exit_is_the_tools_failure(make):
    with pytest.raises(RemoteToolError, match="SystemExit"):
        await run(make(), "exit_politely")


async def test_sentence_for_the_model_crosses_as_it_is(make):
    with pytest.raises(ToolFailed, match=r"^Give me a city\.$"):
        await run(make(), "raise_error", kind="failed")


@pytest.mark.parametrize(
    ("kind", "collected"),
    [
        ("generator", [0, 1, 4, 9]),
        ("async", [0, 1, 4, 9]),
        ("dates", ["2025-12-31"]),
        ("endless", list(range(1_000_000, 1_000_143))),
    ],
)
async def test_lazy_result_is_collected_in_the_worker_within_the_limit(make, kind, collected):
    assert await run(make(), "lazy", kind=kind) == collected


async def test_forgotten_coroutine_is_no_result(make):
    with pytest.raises(ToolFailed, match="had not awaited"):
        await run(make(), "forgets_to_await")


@pytest.mark.parametrize("kind", ["set", "nan", "bytes", "nested"])
async def test_result_that_is_no_json_is_refused(make, kind):
    with pytest.raises(CallRefused) as refused:
        await run(make(), "result", kind=kind)
    assert refused.value.code == "not_json"


@pytest.mark.parametrize(
    ("function", "given", "told"),
    [
        (worker_tools.result, {"kind": "nan"}, "is not plain JSON data"),
        (worker_tools.result, {"kind": "bytes"}, "is not plain JSON data"),
        (worker_tools.big, {"size": 2_000_000}, "is too large"),
    ],
)
async def test_the_model_learns_that_a_tool_whose_result_is_lost_has_run(
    make, function, given, told
):
    made = make_tool(function, name="tool", isolation="process")
    invokers = {Isolation.PROCESS: make(result_limit=1_000_000)}
    executor = ToolExecutor(registry=ToolRegistry({"tool": made}), invokers=invokers)
    outcome = await executor.run(ToolCall(id="1", tool_name="tool", input=given))
    assert (outcome.status, outcome.disposition) == ("failed", "settled")
    assert outcome.result.startswith(f"[ERROR] The tool has run, but its result {told}")
    assert "Do not repeat it for the result alone" in outcome.result


async def test_half_a_surrogate_pair_arrives_as_text_that_can_be_stored(make):
    assert await run(make(), "result", kind="surrogate") == "? half"


async def test_result_over_the_limit_is_refused_and_one_below_it_arrives(make):
    invoker = make(result_limit=1_000_000)
    assert len(await run(invoker, "big", size=999_000)) == 499_500
    with pytest.raises(CallRefused) as refused:
        await run(invoker, "big", size=1_100_000)
    assert refused.value.code == "too_large"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [({"a": object(), "b": 1}, "not_json"), ({"a": "x" * 2000, "b": 1}, "too_large")],
)
async def test_arguments_that_cannot_cross_are_refused(make, arguments, code):
    invoker = make(result_limit=1000)
    with pytest.raises(CallRefused) as refused:
        await run(invoker, "add", **arguments)
    assert refused.value.code == code
    await eventually(lambda: invoker.live == 0)


@pytest.mark.parametrize(
    "name", ["no.such.module:f", f"{TOOLS}:nothing", f"{TOOLS}:coroutine", "json:", ":"]
)
async def test_function_that_cannot_be_found_is_refused(make, name):
    with pytest.raises(CallRefused) as refused:
        await Call(make(), name, {}).task
    assert refused.value.code == "not_importable"


async def test_initializer_runs_once_before_the_first_call(make):
    invoker = make(initializer=f"{TOOLS}:initialize")
    [first] = await run(invoker, "initialized_in")
    assert await run(invoker, "initialized_in") == [first] != [await run(invoker, "pid")]


async def test_search_path_of_the_server_is_not_passed_on_to_the_tools_children(make, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    invoker = make()
    assert await run(invoker, "environment", name="PYTHONPATH") == "/somewhere/else"
    assert await run(invoker, "child_sees", name="PYTHONPATH") == "/somewhere/else"


async def test_own_environment_replaces_the_servers(make, monkeypatch):
    monkeypatch.setenv("SERVER_SECRET", "hunter2")
    invoker = make(environment={"PATH": os.environ["PATH"]})
    assert await run(invoker, "environment", name="SERVER_SECRET") is None
