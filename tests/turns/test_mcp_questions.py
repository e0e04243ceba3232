"""A running call of an MCP server asks its person, on the road of approvals (issue 36)."""

import asyncio
import json
import sys

import pytest

from governance import registry
from governance.db import run_in_db_thread
from governance.models import Activity, Approval, McpServer
from governance.runtime import prepare_tools
from tests.governance.mcp.support import HERE
from tests.support import PATIENCE, eventually, with_room
from tests.turns.support import in_database, is_paused
from tests.turns.tools.scripted_agents import ask, running, use_scripts
from turns import services
from turns.exceptions import InvalidAnswer
from turns.running import runtime
from turns.selectors import conversation_status
from turns.services import OpOutcome
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)
WHO = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your <b>name</b>", "minLength": 2},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
    },
    "required": ["name"],
}
NAME = {"message": "Who are you?", "requestedSchema": WHO}


@run_in_db_thread
def add_server(**values):
    program = f"{sys.executable} {HERE / 'unruly_server.py'} curious"
    values = {"asks_people": True, **values}
    McpServer.objects.create(name="unruly", command=program, **values)


async def begin(chat, *questions, tool="inquire", server=None, **arguments):
    """Start a turn whose one call asks these questions."""
    await add_server(**(server or {}))
    await prepare_tools()
    await eventually(lambda: "unruly_inquire" in registry, timeout=PATIENCE)
    chat.use_script(
        [call("c1", f"unruly_{tool}", questions=list(questions), **arguments)], [text("Done.")]
    )
    return await chat.say()


async def asked(chat, **fields):
    return await chat.sink.until("tool_question", tool_id="c1", **fields)


async def answer(chat, turn_id, action, content=None, **how):
    receipt = await services.answer_tool(
        turn_id=turn_id, tool_id="c1", user=chat.user, action=action, answers=content, **how
    )
    return receipt.outcome


async def told(chat, turn_id):
    """Return what the server was answered, once the turn has ended."""
    turn = await chat.ended(turn_id)
    assert turn.status == "completed"
    (row,) = (await chat.calls(turn_id)).values()
    assert row.status == "succeeded", row.result
    return json.loads(row.result)


async def reasons(chat, turn_id):
    answers = await told(chat, turn_id)
    return [it["_meta"]["django-turnkeeper/reason"] for it in answers if "action" in it]


async def test_a_person_answers_a_form_and_the_server_gets_what_fits_it(chat):
    turn_id = await begin(chat, NAME)
    question = await asked(chat)
    assert question["tool_server"] == "unruly"
    assert question["form"]["message"] == "Who are you?"
    name, age, color = question["form"]["fields"]
    assert (name["kind"], name["required"], name["title"]) == ("text", True, "Your <b>name</b>")
    assert (age["kind"], age["maximum"]) == ("integer", 150)
    assert (color["kind"], color["default"]) == ("choice", "red")

    for wrong in ({}, {"name": "A"}, {"name": "Ada", "age": 151}, {"name": "Ada", "x": 1}):
        with pytest.raises(InvalidAnswer):
            await answer(chat, turn_id, "accept", wrong)
    content = {"name": "Ada", "age": 36, "color": "green"}
    assert await answer(chat, turn_id, "accept", content) is OpOutcome.ACCEPTED
    assert await answer(chat, turn_id, "decline") is OpOutcome.ALREADY_FINISHED

    assert await told(chat, turn_id) == [{"action": "accept", "content": content}]
    event = chat.sink.find("tool_answer", tool_id="c1")
    assert (event["action"], event["by"]) == ("accept", "ada")
    row = await in_database(Approval.objects.get)
    assert (row.decision, row.by_name, row.answers) == ("approved", "ada", content)
    act = await in_database(lambda: Activity.objects.get(kind="decision"))
    assert (act.action, act.by_name, act.subject) == ("answer", "ada", "unruly_inquire")


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_need_not_answer(chat, action):
    turn_id = await begin(chat, NAME)
    await asked(chat)
    assert await answer(chat, turn_id, action) is OpOutcome.ACCEPTED
    assert await told(chat, turn_id) == [{"action": action}]


async def test_nobody_is_asked_without_the_tick(chat):
    turn_id = await begin(chat, NAME, server={"asks_people": False})
    (refusal,) = await told(chat, turn_id)
    assert "not supported" in refusal["message"]
    assert chat.sink.find("tool_question") is None


async def test_the_limits_of_the_call_and_the_turn_wait_for_the_person(chat, settings):
    settings.TURNS_TURN_TIMEOUT = 3.0
    turn_id = await begin(chat, NAME, server={"timeout_ms": 1500})
    await asked(chat)
    await asyncio.sleep(4)  # longer than both limits, which is what is tested
    await answer(chat, turn_id, "accept", {"name": "Ada"})
    assert await told(chat, turn_id) == [{"action": "accept", "content": {"name": "Ada"}}]
    (row,) = (await chat.calls(turn_id)).values()
    assert row.duration_ms < 1500


async def test_an_unanswered_form_expires_as_an_approval_does(chat, settings):
    settings.GOVERNANCE_APPROVAL_TIMEOUT = 0.5
    turn_id = await begin(chat, NAME)
    await asked(chat)
    assert await told(chat, turn_id) == [{"action": "cancel"}]
    assert (await in_database(Approval.objects.get)).decision == "expired"
    assert chat.sink.find("tool_answer", tool_id="c1")["action"] == "cancel"
    assert await answer(chat, turn_id, "accept", {"name": "Ada"}) is not OpOutcome.ACCEPTED


@pytest.mark.parametrize("what", ["turn", "call"])
async def test_a_cancel_ends_the_question(chat, what):
    turn_id = await begin(chat, NAME)
    await asked(chat)
    if what == "turn":
        await chat.cancel(turn_id)
    else:
        await chat.cancel_call(turn_id, "c1")
    turn = await chat.ended(turn_id, within=with_room(2))
    assert turn.status == ("cancelled" if what == "turn" else "completed")
    row = await in_database(Approval.objects.get)
    assert (row.decision, row.answers) == ("cancelled", None)
    assert await answer(chat, turn_id, "accept", {"name": "Ada"}) is not OpOutcome.ACCEPTED


async def test_eve_can_neither_see_nor_answer_a_form_of_ada(chat, eve):
    turn_id = await begin(chat, NAME)
    await asked(chat)
    receipt = await services.answer_tool(
        turn_id=turn_id, tool_id="c1", user=eve, action="accept", answers={"name": "Eve"}
    )
    assert receipt.outcome is OpOutcome.NOT_FOUND
    await answer(chat, turn_id, "decline")
    assert await told(chat, turn_id) == [{"action": "decline"}]


async def test_a_form_of_a_sub_agent_is_answered_in_the_conversation_that_it_works_for(
    chat, settings
):
    settings.GOVERNANCE_PROGRESS_INTERVAL = 0.05
    await add_server()
    await prepare_tools()
    await eventually(lambda: "unruly_inquire" in registry, timeout=PATIENCE)
    use_scripts(
        chat,
        go=[[ask("a1", "dig")], [text("Good.")]],
        dig=[[call("c1", "unruly_inquire", questions=[NAME])], [text("Ada.")]],
    )
    turn_id = await chat.say()
    below = (await running("dig")).pk

    async def forms():
        overview = await conversation_status.look(owners=[chat.user.pk], conversations=[chat.id])
        return overview.forms[chat.id]

    (asked_below,) = await eventually(forms, timeout=PATIENCE)
    named = [asked_below[name] for name in ("turn_id", "tool_id", "agent", "parent_tool_id")]
    assert named == [str(below), "c1", "assistant", "a1"]
    assert asked_below["form"]["message"] == "Who are you?"
    await chat.sink.until(
        "tool_progress",
        tool_id="a1",
        message="assistant: waiting for your answer to a form of unruly_inquire",
    )
    clocks = [runtime.find_turn(pk).runner.clock for pk in (turn_id, below)]
    await eventually(lambda: all(map(is_paused, clocks)))

    assert await answer(chat, below, "accept", {"name": "Ada"}) is OpOutcome.ACCEPTED
    assert await told(chat, below) == [{"action": "accept", "content": {"name": "Ada"}}]
    assert (await chat.ended(turn_id)).status == "completed"
    assert not any(map(is_paused, clocks))
    assert (await forms()) == []


async def test_a_decision_on_an_approval_is_no_answer_to_a_form(chat):
    turn_id = await begin(chat, NAME)
    await asked(chat)
    receipt = await chat.decide(turn_id, "c1")
    assert receipt.outcome is OpOutcome.ALREADY_FINISHED
    await answer(chat, turn_id, "decline")
    assert await told(chat, turn_id) == [{"action": "decline"}]


def field(**schema):
    return {
        "message": "?",
        "requestedSchema": {"type": "object", "properties": {"it": schema}},
    }


SECRETS = [
    field(type="string", format="password"),
    field(type="string", title="Your password"),
    field(type="string", description="the API key of your bank"),
    field(type="string", description="Never mind. Your passphrase"),
    {**field(type="string"), "message": "What is the password of your account?"},
    {
        "message": "?",
        "requestedSchema": {"type": "object", "properties": {"userPin": {"type": "string"}}},
    },
]
MANY = {f"field{number}": {"type": "string"} for number in range(5_000)}
MONSTERS = [
    field(type="object", properties={"nested": {"type": "string"}}),
    field(type="array", items={"type": "string"}),
    field(type="string", enum=[str(number) for number in range(100_000)]),
    field(type="string", enum=["x" * 1_000_000]),
    {"message": "?", "requestedSchema": {"type": "object", "properties": MANY}},
    {"message": "?", "requestedSchema": {"type": "object", "properties": [1]}},
    {"message": "?", "requestedSchema": {"type": "object", "properties": {}, "required": ["a"]}},
]


async def test_secrets_are_not_asked_for(chat):
    turn_id = await begin(chat, *SECRETS)
    assert set(await reasons(chat, turn_id)) == {"it asks for a password or another secret"}
    assert chat.sink.find("tool_question") is None


async def test_a_form_that_warns_of_secrets_or_cannot_hold_one_is_shown(chat):
    warning = field(type="string", description="Your motto (do not enter a PIN or password)")
    choice = {**field(type="boolean"), "message": "May I renew the token?"}
    turn_id = await begin(chat, warning, choice)
    for number in range(2):
        question = await eventually(lambda number=number: _nth(chat, number), timeout=PATIENCE)
        await answer(chat, turn_id, "decline", question=question["question_id"])
    assert await told(chat, turn_id) == [{"action": "decline"}] * 2


async def test_forms_that_are_too_much_are_declined_with_the_reason(chat):
    turn_id = await begin(chat, *MONSTERS)
    assert len(await reasons(chat, turn_id)) >= len(MONSTERS) - 1  # the SDK refuses one itself
    assert chat.sink.find("tool_question") is None


async def test_a_link_is_declined_with_the_reason(chat):
    link = {"mode": "url", "message": "Log in", "url": "https://evil.example", "elicitationId": "1"}
    turn_id = await begin(chat, link)
    assert await reasons(chat, turn_id) == ["it wants to open a link, which is not supported here"]


async def test_a_pattern_is_never_run(chat):
    bomb = field(type="string", pattern="^(a+)+$")
    turn_id = await begin(chat, bomb)
    await asked(chat)
    content = {"it": "a" * 60 + "!"}
    assert await answer(chat, turn_id, "accept", content) is OpOutcome.ACCEPTED
    assert await told(chat, turn_id) == [{"action": "accept", "content": content}]


async def test_long_texts_of_a_form_are_cut(chat):
    turn_id = await begin(chat, {**field(type="string", title="T" * 10**6), "message": "M" * 10**6})
    form = (await asked(chat))["form"]
    assert len(form["message"]) == 2_000
    assert len(form["fields"][0]["title"]) == 500
    await answer(chat, turn_id, "decline")
    await told(chat, turn_id)


async def test_a_server_that_asks_without_end_is_answered_a_few_times(chat):
    turn_id = await begin(chat, NAME, times=3_000)
    for number in range(10):
        question = await eventually(lambda number=number: _nth(chat, number), timeout=PATIENCE)
        await answer(chat, turn_id, "decline", question=question["question_id"])
    answers = await told_long(chat, turn_id)
    assert "one call may ask at most 10 questions" in answers
    assert await in_database(Approval.objects.count) == 10


def _nth(chat, number):
    events = [event for event in chat.sink.events if event["type"] == "tool_question"]
    return events[number] if len(events) > number else None


async def told_long(chat, turn_id):
    assert (await chat.ended(turn_id)).status == "completed"
    (row,) = (await chat.calls(turn_id)).values()
    return row.result


async def test_a_question_after_the_answer_belongs_to_no_call(chat):
    turn_id = await begin(chat, NAME, tool="inquire_late")
    await chat.ended(turn_id)
    chat.use_script([call("c2", "unruly_children")], [text("Done.")])
    turn_id = await chat.say()
    (late,) = await told(chat, turn_id)
    assert late["action"] == "decline"
    assert late["_meta"]["django-turnkeeper/reason"].startswith("it asked outside a call")
    assert chat.sink.find("tool_question") is None


async def test_a_form_is_closed_with_the_process_that_asks(chat):
    turn_id = await begin(chat, NAME)
    await asked(chat)
    await runtime.stop(grace=0)
    await chat.ended(turn_id)
    assert (await in_database(Approval.objects.get)).decision != ""
    assert await answer(chat, turn_id, "accept", {"name": "Ada"}) is not OpOutcome.ACCEPTED
