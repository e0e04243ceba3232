"""A message that is edited and sent again replaces all that was said since. That stays to be seen (H1)."""

import asyncio
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.utils.timezone import now

from governance.models import Approval
from tests.turns.row_factory import RowFactory, said
from tests.turns.support import ChatDriver, FakeTools, in_database, row
from tests.turns.tools.scripted_agents import child, ended, spawn, use_scripts
from turns import selectors, services
from turns.calls import approvals
from turns.core.chat_model import ChatRequest
from turns.exceptions import (
    AlreadyReplaced,
    CannotContinue,
    CannotReplace,
    ConversationBusy,
    ConversationParked,
    MessageRejected,
    TooManyMessages,
)
from turns.history.reports import undelivered
from turns.models import Conversation, Turn
from turns.queueing import queue
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


def texts(request: ChatRequest) -> list[str]:
    """What a chat model was told, from the first message on."""
    return [block.text for message in request.messages for block in message.texts]


async def replaced(chat: ChatDriver) -> dict[str, str]:
    """By what was said: what has replaced it."""
    turns = Turn.objects.filter(conversation=chat.id).select_related("replaced_by")
    rows = await in_database(lambda: list(turns.order_by("number")))
    return {turn.user_message: turn.replaced_by.user_message for turn in rows if turn.replaced_by}


async def test_an_edited_message_replaces_its_turn_and_all_behind_it(chat: ChatDriver):
    calls = [call("a", "quick"), call("b", "failing")]
    answers = [[text(f"Answer {number}.")] for number in range(1, 5)]
    model = chat.use_script(answers[0], calls, *answers[1:])
    await chat.run("one")
    second = await chat.run("two")
    await chat.run("three")
    made = await chat.run("two, but better", replaces=second.pk)

    assert texts(model.requests[-1]) == ["one", "Answer 1.", "two, but better"]
    assert [m.texts[0].text for m in await chat.history()] == [
        "one",
        "Answer 1.",
        "two, but better",
        "Answer 4.",
    ]
    assert await replaced(chat) == {"two": "two, but better", "three": "two, but better"}
    queued = chat.sink.find("turn_queued", turn_id=str(made.pk))
    assert (queued["replaces"], queued["version"]) == (str(second.pk), 2)
    snapshot: Any = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    facts = {
        turn["user_message"]: (turn["replaced_by"], turn["version"]) for turn in snapshot["turns"]
    }
    assert facts == {
        "one": (None, 1),
        "two": (str(made.pk), 1),
        "three": (str(made.pk), 1),
        "two, but better": (None, 2),
    }
    assert {call["tool_id"] for call in snapshot["calls"]} == {"a", "b"}
    assert len(snapshot["messages"]) == 9
    first_again = await chat.sink.until("turn_queued", user_message="one")
    assert (first_again["version"], "replaces" in first_again) == (1, False)


async def test_versions_are_counted_and_what_was_replaced_keeps_by_what(chat: ChatDriver):
    model = chat.use_script(*([text(f"Answer {number}.")] for number in range(5)))
    first = await chat.run("one")
    second = await chat.run("two")
    third = await chat.run("two again", replaces=second.pk)
    assert (await chat.run("two at last", replaces=third.pk)).version == 3
    made = await chat.run("one again", replaces=first.pk)
    assert made.version == 2
    assert texts(model.requests[-1]) == ["one again"]
    assert await replaced(chat) == {
        "one": "one again",
        "two": "two again",
        "two again": "two at last",
        "two at last": "one again",
    }
    await chat.history()


async def test_the_same_client_id_replaces_once_and_has_the_same_answer(chat: ChatDriver):
    chat.use_script([text("One.")], [text("Two.")])
    first = await chat.run("one")
    how: Any = {"replaces": first.pk, "client_id": "m2"}
    ids = await asyncio.gather(*(chat.say("better", **how) for _ in range(4)))
    await chat.ended(ids[0])
    ids.append(await chat.say("better", **how))
    assert len(set(ids)) == 1
    assert await in_database(Turn.objects.count) == 2


async def test_of_two_that_edit_the_same_message_one_is_refused(chat: ChatDriver):
    chat.use_script([text("One.")], [text("Two.")])
    first = await chat.run("one")
    answers = await asyncio.gather(
        *(chat.say(f"better {number}", replaces=first.pk) for number in range(4)),
        return_exceptions=True,
    )
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    assert len(refused) == 3
    assert all(isinstance(answer, AlreadyReplaced) for answer in refused)
    assert len(await replaced(chat)) == 1


async def test_while_something_runs_or_waits_nothing_is_replaced(
    chat: ChatDriver, fake_tools: FakeTools
):
    chat.use_script([text("One.")], [call("a", "held")], [text("Two.")], [text("Three.")])
    first = await chat.run("one")
    running = await chat.say("two")
    await chat.running(running, "a")
    for turn_id in (first.pk, running):
        with pytest.raises(ConversationBusy):
            await chat.say("better", replaces=turn_id)
    fake_tools.open("a")
    await chat.ended(running)
    assert await replaced(chat) == {}


async def test_a_cancel_word_ends_what_runs_whatever_it_would_replace(
    chat: ChatDriver, fake_tools: FakeTools
):
    chat.use_script([text("One.")], [call("a", "held")])
    first = await chat.run("one")
    running = await chat.say("two")
    await chat.running(running, "a")
    assert await chat.say("stop", replaces=first.pk) == running
    assert (await chat.ended(running)).status == "cancelled"
    assert await replaced(chat) == {}


def turn_of(owner: Any) -> Turn:
    return RowFactory(owner).turn()


async def test_only_a_message_that_a_person_has_said_here_is_replaced(chat: ChatDriver, ada, eve):
    chat.use_script([text("One.")], [text("Two.")])
    first = await chat.run("one")
    elsewhere = [await in_database(partial(turn_of, who)) for who in (ada, eve)]
    here = RowFactory(conversation=await row(Conversation, pk=chat.id))
    others = [
        await in_database(partial(here.turn, source=source))
        for source in ("continue", "sub_agent", "agent")
    ]
    for turn_id in (uuid4(), *(turn.pk for turn in (*elsewhere, *others))):
        with pytest.raises(CannotReplace):
            await chat.say("better", replaces=turn_id)
    assert await in_database(Turn.objects.exclude(replaced_by=None).count) == 0
    assert (await chat.run("better", replaces=first.pk)).version == 2
    with pytest.raises(AlreadyReplaced):
        await chat.say("better still", replaces=first.pk)


async def test_what_is_refused_replaces_nothing(chat: ChatDriver, settings):
    chat.use_script([text("One.")])
    first = await chat.run("one")
    before = await chat.history()
    with pytest.raises(MessageRejected):
        await chat.say("  ", replaces=first.pk)
    settings.TURNS_MAX_MESSAGES_PER_MINUTE = 1
    with pytest.raises(TooManyMessages):
        await chat.say("better", replaces=first.pk)
    conversations = Conversation.objects.filter(pk=chat.id)
    await in_database(lambda: conversations.update(parked_at=first.ended_at))
    with pytest.raises(ConversationParked):
        await chat.say("better", replaces=first.pk)
    assert await replaced(chat) == {}
    assert await chat.history() == before


async def test_what_was_allowed_since_then_lapses_and_is_kept_as_a_decision(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.GOVERNANCE_APPROVAL = {}
    fake_tools.open_all()
    earlier, later = call("a", "asked"), call("c", "asked_too")
    chat.use_script(
        [earlier],
        [text("One.")],
        [later],
        [text("Two.")],
        [call("a2", "asked"), call("c2", "asked_too")],
        [text("Three.")],
    )
    for said_, tool_id in (("one", "a"), ("two", "c")):
        turn_id = await chat.say(said_)
        await chat.asked(turn_id, tool_id)
        await chat.decide(turn_id, tool_id, remember="conversation")
        await chat.ended(turn_id)
    made = await chat.say("two again", replaces=turn_id)
    await chat.asked(made, "c2")
    await chat.decide(made, "c2")
    await chat.ended(made)
    assert not chat.sink.find("tool_approval", tool_id="a2")
    rows = await in_database(lambda: {row.call_id: row for row in Approval.objects.all()})
    lapsed = {name: row.lapsed_at is not None for name, row in rows.items()}
    assert lapsed == {"a": False, "c": True, "c2": False}
    assert rows["c"].remember


async def test_a_host_that_only_a_replaced_message_names_is_not_known_any_more(chat: ChatDriver):
    chat.use_script([text("One.")], [text("Two.")])
    first = await chat.run("look at tulips.example")
    assert await in_database(lambda: approvals.is_known_host("tulips.example", turn=first))
    made = await chat.run("look elsewhere", replaces=first.pk)
    assert not await in_database(lambda: approvals.is_known_host("tulips.example", turn=made))


async def test_the_prompt_says_nothing_of_a_replaced_turn_that_was_interrupted(
    chat: ChatDriver, fake_tools: FakeTools
):
    model = chat.use_script([text("One.")], [call("a", "held")], [text("Two.")])
    await chat.run("one")
    cut_off = await chat.say("two")
    await chat.running(cut_off, "a")
    await chat.cancel(cut_off)
    await chat.ended(cut_off)
    await chat.run("two again", replaces=cut_off)
    assert texts(model.requests[-1]) == ["one", "One.", "two again"]


async def test_a_replaced_turn_that_was_interrupted_does_not_go_on(chat: ChatDriver):
    chat.use_script([text("One.")], [text("Two.")])
    await chat.run("one")
    here = RowFactory(conversation=await row(Conversation, pk=chat.id))
    cut_off = await in_database(lambda: here.turn("interrupted"))
    await chat.run("again", replaces=cut_off.pk)
    with pytest.raises(CannotContinue):
        await services.continue_turn(turn_id=cut_off.pk, user=chat.user)


async def test_no_message_is_edited_while_a_sub_agent_works_for_the_conversation(
    chat: ChatDriver, fake_tools: FakeTools
):
    use_scripts(
        chat,
        go=[[spawn("s1", "dig")], [text("It digs.")]],
        dig=[[call("c1", "held")], [text("Gold.")]],
        better=[[text("Done.")]],
        **{"[SUB-AGENT]": [[text("I know.")]]},
    )
    turn = await chat.run()
    dug = await child("dig", status="running")
    with pytest.raises(ConversationBusy):
        await chat.say("better", replaces=turn.pk)
    fake_tools.open("c1")
    await ended(dug)
    carrier = await chat.sink.until("turn_start", source="sub_agent")
    await chat.ended(carrier["turn_id"])
    await chat.run("better", replaces=turn.pk)
    assert [m.texts[0].text for m in await chat.history()] == ["better", "Done."]


async def test_the_report_of_work_that_was_replaced_is_due_to_nobody(chat: ChatDriver, ada):
    here = RowFactory(conversation=await row(Conversation, pk=chat.id))
    first = await in_database(here.turn)
    below = RowFactory(
        conversation=await in_database(
            lambda: Conversation.objects.create(owner=ada, parent=here.conversation)
        )
    )
    fields = {"parent": first, "root": first, "is_detached": True}
    await in_database(lambda: below.turn(**fields))

    def due() -> list[Turn]:
        return list(undelivered(chat.id))

    assert len(await in_database(due)) == 1
    edited = {"text": "better", "source": "typed", "client_id": None, "replaces": first.pk}
    await in_database(lambda: queue.enqueue(chat.id, **edited))
    assert await in_database(due) == []


async def test_a_report_that_only_a_replaced_turn_was_told_is_told_again(chat: ChatDriver, ada):
    model = chat.use_script([text("Three.")])
    here = RowFactory(conversation=await row(Conversation, pk=chat.id))
    below = RowFactory(
        conversation=await in_database(
            lambda: Conversation.objects.create(owner=ada, parent=here.conversation)
        )
    )

    def plant() -> Turn:
        first, second = here.turn(), here.turn()
        dug = below.turn(parent=first, root=first, is_detached=True, delivered_at=now())
        below.message(dug, "assistant", said("Gold."))
        report = {**said("[SUB-AGENT] Gold."), "sub_agent": {"turn_id": str(dug.pk)}}
        here.message(second, "user", report, said("two"))
        return second

    second = await in_database(plant)
    made = await chat.run("two again", replaces=second.pk)
    told = texts(model.requests[-1])
    assert (len(told), "Gold." in told[0], told[1]) == (2, True, "two again")
    started = chat.sink.find("turn_start", turn_id=str(made.pk))
    assert [report["text"] for report in started["reports"]] == ["Gold."]
