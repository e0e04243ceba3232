"""Traces of real turns: the spans, their names and places. Each one ends, and none holds what somebody said."""

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from governance import registry
from governance.logs import KeyValueFormatter
from governance.models import McpServer
from governance.runtime import prepare_tools
from tests.governance.mcp.support import HERE
from tests.spans import Spans, events, recorded_spans, texts, tree
from tests.support import PATIENCE, eventually
from tests.turns.support import CHAT_MODEL, ChatDriver, in_database, run_out_of_time
from tests.turns.tools.scripted_agents import ask, child, spawn, use_scripts
from turns.core.chat_model import Usage
from turns.core.exceptions import ChatModelError
from turns.models import Agent
from turns.running import runtime
from turns.testing import call, failure, gate, text

pytestmark = pytest.mark.django_db(transaction=True)

TURN, CHAT = "invoke_agent assistant", f"chat {CHAT_MODEL}"
SECRET = "tulip-mill"


@pytest.fixture
def spans() -> Iterator[Spans]:
    with recorded_spans() as spans:
        yield spans


async def test_a_turn_is_a_tree_of_steps_requests_and_calls(chat: ChatDriver, spans: Spans):
    usage = Usage(input_tokens=7, output_tokens=2)
    turn = await chat.play(
        [call("a", "quick"), call("b", "failing"), usage], [text("Done."), usage]
    )
    all_of_them = await spans.all_ended()
    assert sorted(tree(all_of_them)) == sorted(
        [
            (TURN, ""),
            ("step", TURN),
            (CHAT, "step"),
            ("execute_tool quick", "step"),
            ("execute_tool failing", "step"),
            ("step", TURN),
            (CHAT, "step"),
        ]
    )
    assert {span.context.trace_id for span in all_of_them} == {spans.named(TURN).context.trace_id}
    shared = {
        "gen_ai.agent.name": turn.agent,
        "gen_ai.conversation.id": str(chat.id),
        "turnkeeper.turn.id": str(turn.pk),
    }
    for span in all_of_them:
        assert shared.items() <= dict(span.attributes).items(), span.name
    assert dict(spans.named(TURN).attributes) == {
        **shared,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": CHAT_MODEL,
        "gen_ai.request.model": CHAT_MODEL,
        "gen_ai.usage.input_tokens": 14,
        "gen_ai.usage.output_tokens": 4,
        "turnkeeper.turn.status": "completed",
    }
    first, second = (span for span in all_of_them if span.name == CHAT)
    assert first.kind is SpanKind.CLIENT
    assert dict(first.attributes) == {
        **shared,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": CHAT_MODEL,
        "gen_ai.request.model": CHAT_MODEL,
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2,
    }
    assert second.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    called = dict(spans.named("execute_tool quick").attributes)
    assert called["gen_ai.operation.name"] == "execute_tool"
    assert called["gen_ai.tool.name"] == "quick"
    assert called["gen_ai.tool.call.id"] == "a"
    assert called["turnkeeper.call.status"] == "succeeded"
    failed = spans.named("execute_tool failing")
    assert failed.attributes["error.type"] == "execution_error"
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description is None


async def cancelled_call(chat: ChatDriver, tool: str) -> None:
    turn_id = await chat.begin([call("a", tool)])
    await chat.cancel(turn_id)
    await chat.ended(turn_id)


async def a_cancelled_call(chat: ChatDriver, settings: Any) -> None:
    await cancelled_call(chat, "held")


async def an_abandoned_body(chat: ChatDriver, settings: Any) -> None:
    await cancelled_call(chat, "stubborn")


async def an_abandoned_thread(chat: ChatDriver, settings: Any) -> None:
    await cancelled_call(chat, "blocked")


async def a_cancelled_request(chat: ChatDriver, settings: Any) -> None:
    waiting = gate()
    chat.use_script([text("so"), waiting])
    turn_id = await chat.say()
    await waiting.reached.wait()
    await chat.cancel(turn_id)
    await chat.ended(turn_id)


async def cancel_in_vain(chat: ChatDriver) -> asyncio.Event:
    """Cancel a turn whose chat model does not end; return what lets that end."""
    opening = asyncio.Event()
    waiting = gate(opening, ignores_cancel=True)
    chat.use_script([text("so"), waiting])
    turn_id = await chat.say()
    await waiting.reached.wait()
    await chat.cancel(turn_id)
    await chat.ended(turn_id)
    return opening


async def a_chat_model_that_goes_on(chat: ChatDriver, settings: Any) -> None:
    opening = await cancel_in_vain(chat)
    opening.set()


async def a_chat_model_that_fails(chat: ChatDriver, settings: Any) -> None:
    await chat.play([text("so"), failure(ChatModelError("chat_model_rejected", SECRET))])


async def a_fault(chat: ChatDriver, settings: Any) -> None:
    await chat.play([text("so"), failure(RuntimeError(SECRET))])


async def a_call_out_of_time(chat: ChatDriver, settings: Any) -> None:
    settings.GOVERNANCE_TOOL_TIMEOUTS = {"held": 0.05}
    await chat.play([call("a", "held")], [text("Done.")])


async def a_turn_out_of_time(chat: ChatDriver, settings: Any) -> None:
    turn_id = await chat.begin([call("a", "held")])
    run_out_of_time(turn_id)
    await chat.ended(turn_id)


async def too_many_steps(chat: ChatDriver, settings: Any) -> None:
    settings.TURNS_STEP_LIMIT = 1
    await chat.play([call("a", "quick")])


async def an_invented_tool(chat: ChatDriver, settings: Any) -> None:
    await chat.play([call("a", SECRET)], [text("Done.")])


async def a_denied_call(chat: ChatDriver, settings: Any) -> None:
    settings.GOVERNANCE_APPROVAL = {}
    chat.use_script([call("a", "asked")], [text("Done.")])
    turn_id = await chat.say()
    await chat.asked(turn_id, "a")
    await chat.decide(turn_id, "a", decision="deny")
    await chat.ended(turn_id)


async def an_unanswered_question(chat: ChatDriver, settings: Any) -> None:
    settings.GOVERNANCE_APPROVAL = {}
    settings.GOVERNANCE_APPROVAL_TIMEOUT = 0.05
    await chat.play([call("a", "asked")], [text("Done.")])


async def a_shutdown(chat: ChatDriver, settings: Any) -> None:
    await chat.begin([call("a", "held")])
    await runtime.stop(grace=0)


async def a_lost_lease(chat: ChatDriver, settings: Any) -> None:
    await chat.begin([call("a", "stubborn")])
    await (await runtime.ensure_started()).supervisor.fence()


async def a_crash_of_the_supervisor(chat: ChatDriver, settings: Any) -> None:
    await chat.begin([call("a", "stubborn")])
    [overseer] = [task for task in asyncio.all_tasks() if task.get_name().startswith("claim as")]
    overseer.cancel()
    await asyncio.wait({overseer})


CANCEL = ("turnkeeper.cancel", "user")
TIMEOUT = ("turnkeeper.timeout", None)
ENDINGS = [
    (a_cancelled_call, {TURN: (None, CANCEL), "execute_tool held": (None, CANCEL)}),
    (an_abandoned_body, {TURN: (None, CANCEL), "execute_tool stubborn": (None, CANCEL)}),
    (an_abandoned_thread, {TURN: (None, CANCEL), "execute_tool blocked": (None, CANCEL)}),
    (a_cancelled_request, {TURN: (None, CANCEL), CHAT: (None, CANCEL)}),
    (a_chat_model_that_goes_on, {TURN: (None, CANCEL), CHAT: (None, CANCEL)}),
    (a_chat_model_that_fails, {TURN: ("chat_model_rejected",), CHAT: ("chat_model_rejected",)}),
    (a_fault, {TURN: ("internal_error",), CHAT: ("RuntimeError",)}),
    (a_call_out_of_time, {TURN: (None,), "execute_tool held": ("timeout", TIMEOUT)}),
    (a_turn_out_of_time, {TURN: ("timeout", TIMEOUT), "execute_tool held": (None, TIMEOUT)}),
    (too_many_steps, {TURN: ("step_limit",), "execute_tool quick": (None,)}),
    (an_invented_tool, {TURN: (None,), "execute_tool unknown": ("unknown_tool",)}),
    (a_denied_call, {TURN: (None,), "execute_tool asked": (None,)}),
    (an_unanswered_question, {TURN: (None,), "execute_tool asked": ("expired", TIMEOUT)}),
    (
        a_shutdown,
        {
            TURN: ("interrupted", ("turnkeeper.cancel", "shutdown")),
            "execute_tool held": (None, ("turnkeeper.cancel", "shutdown")),
        },
    ),
    (
        a_lost_lease,
        {
            TURN: ("error", ("turnkeeper.cancel", "error")),
            "execute_tool stubborn": (None, ("turnkeeper.cancel", "error")),
        },
    ),
    (a_crash_of_the_supervisor, {TURN: ("cancelled",)}),
]


@pytest.mark.parametrize(
    ("happen", "told"), ENDINGS, ids=[happen.__name__ for happen, _ in ENDINGS]
)
async def test_every_span_ends_and_says_how(
    happen: Any, told: Any, chat: ChatDriver, settings: Any, spans: Spans
):
    await happen(chat, settings)
    all_of_them = await spans.all_ended()
    for name, (error_type, *happened) in told.items():
        span = next(span for span in all_of_them if span.name == name)
        assert span.attributes.get("error.type") == error_type, name
        seen = [(event, facts.get("turnkeeper.cancel.reason")) for event, facts in events(span)]
        assert seen == happened, name
    for span in all_of_them:
        has_failed = "error.type" in span.attributes
        assert (span.status.status_code is StatusCode.ERROR) == has_failed, span.name
    assert SECRET not in texts(all_of_them)


async def test_nothing_that_was_said_is_traced_unless_it_is_asked_for(
    chat: ChatDriver, settings: Any, spans: Spans
):
    async def run() -> str:
        chat.use_script(
            [
                text(f"{SECRET} of the answer"),
                call("a", "quick", text=f"{SECRET} of the result"),
                call("b", "failing"),
                call("c", "noted", text=SECRET),
                call("d", f"made_up_{SECRET}"),
            ],
            [text(f"{SECRET} of the end")],
        )
        settings.GOVERNANCE_ERROR_TEXT = ["*"]
        await chat.run(f"{SECRET} of the person")
        return texts(await spans.all_ended())

    assert SECRET not in await run()
    settings.TURNS_TRACE_CONTENT = True
    said = await run()
    for place in ("of the person", "of the answer", "of the result", "of the end"):
        assert f"{SECRET} {place}" in said
    last = max((span for span in spans.ended if span.name == CHAT), key=lambda s: s.start_time or 0)
    messages = json.loads(last.attributes["gen_ai.input.messages"])
    assert [message["role"] for message in messages[-3:]] == ["user", "assistant", "user"]
    assert messages[-2]["parts"][1]["type"] == "tool_call"
    result = next(part for part in messages[-1]["parts"] if part["id"] == "a")
    assert result == {
        "type": "tool_call_response",
        "id": "a",
        "response": f"{SECRET} of the result",
    }
    [answer] = json.loads(last.attributes["gen_ai.output.messages"])
    assert answer["finish_reason"] == "stop"
    assert answer["parts"] == [{"type": "text", "content": f"{SECRET} of the end"}]
    ran = [span for span in spans.ended if "gen_ai.tool.call.arguments" in span.attributes]
    assert json.loads(ran[0].attributes["gen_ai.tool.call.arguments"])


async def test_what_a_chat_model_goes_on_with_is_left_out_of_its_turn(
    chat: ChatDriver, spans: Spans
):
    opening = await cancel_in_vain(chat)
    all_of_them = await spans.all_ended()
    left = [span.name for span in all_of_them if "turnkeeper.abandoned" in span.attributes]
    assert left == ["step", CHAT]
    opening.set()


async def test_the_lines_of_a_turn_name_its_trace(chat: ChatDriver, spans: Spans):
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(KeyValueFormatter())
    loggers = [logging.getLogger(name) for name in ("governance", "turns")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        await chat.play([call("a", "failing")], [text("Done.")])
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    await spans.all_ended()
    trace_id = f"trace_id={spans.named(TURN).context.trace_id:032x}"
    for sentence in ("A tool raised", "A turn ended"):
        [line] = [line for line in written.getvalue().split("\n") if line.startswith(sentence)]
        assert trace_id in line


async def test_a_turn_belongs_to_the_trace_in_which_its_message_was_taken(
    chat: ChatDriver, spans: Spans
):
    chat.use_script([text("Done.")])
    with trace.get_tracer("a host").start_as_current_span("POST /messages"):
        turn_id = await chat.say()
    await chat.ended(turn_id)
    await spans.all_ended()
    request, turn = spans.named("POST /messages"), spans.named(TURN)
    assert turn.parent.span_id == request.context.span_id
    assert turn.context.trace_id == request.context.trace_id


async def test_a_sub_agent_works_below_the_call_that_set_it_to_work(chat: ChatDriver, spans: Spans):
    await in_database(lambda: Agent.objects.create(name="researcher"))
    use_scripts(
        chat,
        go=[[ask("a1", "dig", "researcher"), spawn("s1", "find", "researcher")], [text("Gold.")]],
        dig=[[call("c1", "quick")], [text("Gold.")]],
        find=[[text("Silver.")]],
    )
    await chat.run()
    dug, found = await child("dig"), await child("find")
    await eventually(lambda: len(spans.of("invoke_agent researcher")) == 2)
    await spans.all_ended()
    for turn, tool in ((dug, "sessions_ask"), (found, "sessions_spawn")):
        works = spans.of("invoke_agent researcher")
        [below] = [s for s in works if s.attributes["turnkeeper.turn.id"] == str(turn.pk)]
        assert below.parent.span_id == spans.named(f"execute_tool {tool}").context.span_id


async def test_the_server_of_an_mcp_tool_is_told_the_trace(chat: ChatDriver, spans: Spans):
    settings_of_server = f"{sys.executable} {HERE / 'unruly_server.py'}"
    await in_database(lambda: McpServer.objects.create(name="unruly", command=settings_of_server))
    await prepare_tools()
    await eventually(lambda: "unruly_meta" in registry, timeout=PATIENCE)
    turn = await chat.play(
        [call("m", "unruly_meta"), call("r", "unruly_refuse", text=SECRET)], [text("Done.")]
    )
    await spans.all_ended()
    calls = await chat.calls(turn.pk)
    told = json.loads(calls["m"].result)["traceparent"].split("-")
    sent = spans.named("MCP send tools/call meta")
    assert told[1:3] == [f"{sent.context.trace_id:032x}", f"{sent.context.span_id:016x}"]
    assert sent.parent.span_id == spans.named("execute_tool unruly_meta").context.span_id
    assert SECRET in calls["r"].result, "the model reads what the server says"
    assert spans.named("MCP send tools/call refuse").status.status_code is StatusCode.ERROR
    assert SECRET not in texts(spans.ended)
