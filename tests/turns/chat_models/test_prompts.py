"""Prompts only grow: each request of a conversation begins with all of the one before, whatever has happened in between."""

import asyncio
from collections import defaultdict
from contextlib import ExitStack
from itertools import pairwise
from uuid import UUID

import pytest

from tests.support import PATIENCE
from tests.turns.chat_models.dialects import ANTHROPIC, OPENAI
from tests.turns.chat_models.servers import Break, Hold, Response
from tests.turns.chat_models.wire_rules import without_marks
from tests.turns.support import in_database, row, run_out_of_time
from tests.turns.tools.scripted_agents import running
from tests.turns.tools_of_servers import many_tools
from turns.core.events import PromptChanged
from turns.models import Agent, Event, Turn
from turns.running import runtime

pytestmark = pytest.mark.django_db(transaction=True)


def head_of(body):
    """What stands before the messages."""
    said = [each for each in body.get("messages", ()) if each["role"] == "system"]
    names = ("system", "instructions", "systemInstruction", "tools")
    return [without_marks(part) for part in (*map(body.get, names), *said)]


def elements_of(body):
    """The messages, one block after the other, each with who has said it."""
    messages = body.get("messages") or body.get("input") or body.get("contents")
    return [
        (message.get("role"), without_marks(element))
        for message in messages
        if message.get("role") != "system"
        for element in blocks_of(message)
    ]


def blocks_of(message):
    content = message.get("content") if "tool_calls" not in message else None
    return content if isinstance(content, list) else message.get("parts") or [message]


def continues(before, after, *, joins_texts):
    """Whether one request begins with all of another.

    A server that takes no two messages of one role in a row gets one that has grown at its end.
    """
    old, new = elements_of(before), elements_of(after)
    if head_of(before) != head_of(after) or len(new) < len(old):
        return False
    *old, (role, last) = old
    *begun, (other_role, grown) = new[: len(old) + 1]
    if joins_texts and role == other_role == "user":
        return old == begun and grown["content"].startswith(last["content"])
    return old == begun and (role, last) == (other_role, grown)


class Talk:
    """A conversation with a provider's model that thinks."""

    def __init__(self, on, server, dialect):
        self.on, self.server, self.dialect = on, server, dialect

    def will_say(self, text="Done."):
        said = self.dialect.text(text, place=1)
        self.server.add(self.dialect.answer(self.dialect.thinking("Hm."), said))

    def will_call(self, *calls):
        wire = self.dialect.wire
        written = [
            wire.call(place, id, tool, **input)
            for place, (id, tool, input) in enumerate(calls, start=1)
        ]
        self.server.add(
            self.dialect.answer(self.dialect.thinking("Let me ", "see."), *written, calls=True)
        )

    def will_hang(self, *, after=""):
        """Hold the next answer, before its first word or behind some."""
        hold = Hold()
        self.server.add(
            self.dialect.unfinished(*self.dialect.open_text(after), hold)
            if after
            else Response(before=[hold])
        )
        return hold

    async def begin(self):
        """A turn with calls side by side, whose arguments are in no order."""
        self.will_call(("a", "quick", {"text": "sunny"}), ("b", "quick", {"text": "warm"}))
        self.will_say("It is sunny.")
        assert (await self.on.run("How is the weather?")).status == "completed"

    async def go_on(self):
        self.will_say("Here I am.")
        turn = await self.on.run("Go on")
        assert turn.status == "completed"
        return turn

    @property
    def last(self):
        """The last request, as text."""
        return str(self.server.requests[-1].body)

    def breaks(self):
        """The places of the requests that do not continue the one before, in each conversation."""
        conversations = defaultdict(list)
        for request in self.server.requests:
            conversations[str(elements_of(request.body)[0])[:60]].append(request.body)
        return [
            place
            for bodies in conversations.values()
            for place, (before, after) in enumerate(pairwise(bodies), start=1)
            if not continues(before, after, joins_texts=self.dialect is OPENAI)
        ]


@pytest.fixture
async def talk(serve, dialect, on, settings):
    settings.GOVERNANCE_APPROVAL = {}  # people are asked as the tools declare it
    return Talk(on, await serve(), dialect)


async def an_answer(talk):
    await talk.go_on()


async def a_call_with_many_arguments(talk):
    input = {"text": "x", "zone": "z", "area": {"y": 1, "b": [{"q": 1, "a": 2}]}}
    talk.will_call(("c", "quick", input))
    talk.will_say()
    await talk.on.run("Try")


async def an_unknown_tool_and_a_failing_one(talk):
    talk.will_call(("c", "nowhere", {}), ("d", "failing", {}))
    talk.will_say()
    await talk.on.run("Try")


async def a_timeout(talk):
    talk.will_call(("c", "held", {"_meta": {"timeout_ms": 60}}))
    talk.will_say()
    assert (await talk.on.run("Try")).status == "completed"


async def a_denied_call(talk):
    talk.will_call(("c", "asked", {"text": "?"}))
    talk.will_say()
    turn_id = await talk.on.say("Try")
    await talk.on.asked(turn_id, "c")
    await talk.on.decide(turn_id, "c", decision="deny", reason="No.")
    await talk.on.ended(turn_id)


async def a_cancelled_call(talk):
    talk.will_call(("c", "held", {}))
    talk.will_say()
    turn_id = await talk.on.say("Try")
    await talk.on.running(turn_id, "c")
    await talk.on.cancel_call(turn_id, "c")
    assert (await talk.on.ended(turn_id)).status == "completed"


async def a_cancel_in_a_call(talk):
    talk.will_call(("c", "quick", {"text": "x"}), ("d", "held", {}))
    turn_id = await talk.on.say("Try")
    await talk.on.running(turn_id, "d")
    await talk.on.cancel(turn_id)
    assert (await talk.on.ended(turn_id)).status == "cancelled"


async def cancel_when(talk, hold, *, text=""):
    turn_id = await talk.on.say("Tell me a story")
    async with asyncio.timeout(PATIENCE):
        await hold.reached.wait()
        if text:
            await talk.on.sink.until("text_delta", text=text)
    await talk.on.cancel(turn_id)
    assert (await talk.on.ended(turn_id)).status == "cancelled"


async def a_cancel_before_the_first_word(talk):
    await cancel_when(talk, talk.will_hang())


async def two_cancels_before_the_first_word(talk):
    await a_cancel_before_the_first_word(talk)
    await a_cancel_before_the_first_word(talk)


async def a_cancel_in_the_text(talk):
    await cancel_when(talk, talk.will_hang(after="Once upon"), text="Once upon")


async def a_cancel_behind_results(talk):
    talk.will_call(("c", "quick", {"text": "x"}))
    await cancel_when(talk, talk.will_hang())


async def a_drop_in_the_text(talk):
    opened = talk.dialect.open_text("Once upon")
    talk.server.add(talk.dialect.unfinished(*opened, Break()))
    assert (await talk.on.run("Tell me a story")).status == "failed"


async def an_answer_without_a_word(talk):
    talk.server.add(talk.dialect.answer())
    await talk.on.run("Say nothing")


async def a_shutdown_in_a_call(talk):
    talk.will_call(("c", "held", {}))
    turn_id = await talk.on.say("Try")
    await talk.on.running(turn_id, "c")
    await runtime.stop(grace=0)
    assert (await row(Turn, pk=turn_id)).status == "interrupted"


async def a_late_result(talk):
    talk.will_call(("c", "stubborn", {"gate": "late", "_meta": {"timeout_ms": 60}}))
    talk.will_say()
    await talk.on.run("Try")
    talk.tools.open("late")
    await talk.on.sink.until("tool_settled", tool_id="c")


async def a_report_of_a_sub_agent(talk):
    talk.will_call(("c", "sessions_spawn", {"message": "dig", "agent": ""}))
    for _ in ("the turn itself", "the sub-agent", "the turn that carries its report"):
        talk.will_say()
    await talk.on.run("Try")
    carrier = await talk.on.sink.until("turn_start", source="sub_agent")
    await talk.on.ended(UUID(carrier["turn_id"]))


async def a_sub_agent_out_of_time(talk):
    talk.will_call(("c", "sessions_ask", {"message": "dig", "agent": ""}))
    talk.will_call(("d", "held", {}))
    talk.will_say("I got half way.")
    talk.will_say()
    turn_id = await talk.on.say("Try")
    await talk.on.sink.until("tool_start", tool_id="d")
    run_out_of_time((await running("dig")).pk)
    await talk.on.ended(turn_id)


EVENTS = [
    an_answer,
    a_call_with_many_arguments,
    an_unknown_tool_and_a_failing_one,
    a_timeout,
    a_denied_call,
    a_cancelled_call,
    a_cancel_in_a_call,
    a_cancel_before_the_first_word,
    two_cancels_before_the_first_word,
    a_cancel_in_the_text,
    a_cancel_behind_results,
    a_drop_in_the_text,
    an_answer_without_a_word,
    a_shutdown_in_a_call,
    a_late_result,
    a_report_of_a_sub_agent,
    a_sub_agent_out_of_time,
]


@pytest.mark.parametrize("event", EVENTS)
async def test_each_request_begins_with_all_of_the_one_before(talk, fake_tools, event):
    talk.tools = fake_tools
    await talk.begin()
    await event(talk)
    await talk.go_on()
    await talk.go_on()

    assert talk.breaks() == []
    assert not await in_database(Event.objects.filter(type=PromptChanged.type).exists)


@pytest.mark.parametrize("dialect", ["openai", "responses", "google"], indirect=True)
async def test_a_crash_leaves_the_prompt_as_it_was(talk, fake_tools, die):
    """The process that dies has another chat model, so there would be no bound thoughts to look at."""
    await talk.begin()
    await runtime.stop(grace=0)
    crashed = await die("Try")
    await runtime.ensure_started()
    await talk.on.ended(crashed)
    await talk.go_on()

    assert "[INTERRUPTED]" in talk.last
    assert talk.breaks() == []


async def test_thoughts_of_earlier_turns_go_back_with_the_note_in_its_place(talk, fake_tools):
    await talk.begin()
    await a_cancel_in_the_text(talk)
    await talk.go_on()
    await talk.go_on()

    assert talk.last.count("[INTERRUPTED]") == 1
    assert "Let me see." in talk.last


@pytest.mark.parametrize("reason", ["tools", "agent"])
async def test_a_change_of_what_was_read_is_told_once_and_takes_the_thoughts_before_it(
    talk, fake_tools, reason
):
    await talk.begin()
    with ExitStack() as stack:
        if reason == "tools":
            stack.enter_context(many_tools(1))
        else:
            await in_database(lambda: Agent.objects.update(instructions="Be kind."))
        changed = await talk.go_on()
        await talk.go_on()

    assert talk.breaks() == [2]
    (told,) = [event for event in talk.on.sink.events if event["type"] == PromptChanged.type]
    assert (told["turn_id"], told["reason"]) == (str(changed.pk), reason)
    assert changed.prompt_change == reason
    assert ("Let me see." in talk.last) == (talk.dialect is not ANTHROPIC)  # which binds them
    assert "Hm." in talk.last


@pytest.mark.parametrize("dialect", ["anthropic"], indirect=True)
async def test_an_edited_message_is_a_change_too(talk, fake_tools):
    await talk.begin()
    second = await talk.go_on()
    talk.will_say()
    edited = await talk.on.run("Go on, please", replaces=second.pk)

    assert edited.prompt_change == "edit"
    assert await talk.go_on()
    assert [
        event["reason"] for event in talk.on.sink.events if event["type"] == "prompt_changed"
    ] == ["edit"]
