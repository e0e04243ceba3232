"""How conversations stand, seen from outside: at work, waiting for a person, parked, interrupted; and what is asked."""

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from governance.db import run_in_db_thread
from governance.models import Approval
from tests.turns.row_factory import RowFactory
from turns import selectors
from turns.models import Conversation, Turn
from turns.selectors import conversation_status
from turns.selectors.conversation_status import ConversationStatus, StatusMark

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def person() -> User:
    return User.objects.create_user("ada")


def ask(turn: Turn, call_id: str = "q", **fields) -> Approval:
    return Approval.objects.create(
        **{
            "group": str(turn.pk),
            "call_id": call_id,
            "scope": str(turn.conversation_id),
            "tool_name": "exec",
            "input": {"command": "rm -r /"},
            "definition": "d",
            "rule": "once_per_conversation",
            "requested_at": timezone.now(),
            **fields,
        }
    )


def set_to_work(parent: Turn, *, status: str = "running", is_detached: bool = False) -> Turn:
    """Plant a sub-agent of a turn, in a conversation of its own."""
    place = Conversation.objects.create(
        owner_id=parent.conversation.owner_id, parent=parent.conversation
    )
    return RowFactory(conversation=place).turn(
        status,
        parent=parent,
        parent_tool_id=f"asks-{parent.depth}",
        depth=parent.depth + 1,
        agent="digger",
        is_detached=is_detached,
    )


def marks_of(person: User) -> dict:
    return dict(conversation_status.read(owners={person.pk}).marks[person.pk])


def test_what_is_at_rest_has_no_mark_and_the_others_have_theirs(person):
    rested, working, parked, left = (RowFactory(person) for _ in range(4))
    rested.turn("interrupted")
    rested.turn("completed")
    working.turn("running")
    working.turn("queued")
    parked.turn("interrupted")
    Conversation.objects.filter(pk=parked.id).update(parked_at=timezone.now())
    left.turn("completed")
    left.turn("interrupted")
    stranger = User.objects.create_user("eve")
    RowFactory(stranger).turn("running")
    assert marks_of(person) == {
        working.id: StatusMark(ConversationStatus.WORKING),
        parked.id: StatusMark(ConversationStatus.PARKED),
        left.id: StatusMark(ConversationStatus.INTERRUPTED),
    }


def test_a_question_is_more_urgent_than_work_and_counts_until_it_is_decided(person):
    place = RowFactory(person)
    turn = place.turn("running")
    first, _second = ask(turn, "one"), ask(turn, "two")
    assert marks_of(person) == {
        place.id: StatusMark(ConversationStatus.ASKING, (place.id, place.id))
    }
    Approval.objects.filter(pk=first.pk).update(decision="approved")
    assert marks_of(person) == {place.id: StatusMark(ConversationStatus.ASKING, (place.id,))}
    Turn.objects.filter(pk=turn.pk).update(status="cancelling")
    assert marks_of(person) == {place.id: StatusMark(ConversationStatus.WORKING)}


def test_a_mark_counts_the_calls_at_work_and_says_what_has_not_begun(person):
    busy, late = RowFactory(person), RowFactory(person)
    top = busy.turn("running")
    busy.turn("queued")
    below = set_to_work(top)
    late.turn("queued")
    busy.call(top, "asks-0", "running")
    busy.call(top, "done", "succeeded")
    busy.call(top, "waits", "pending")
    busy.call(below, "digs", "cancelling")
    assert marks_of(person) == {
        busy.id: StatusMark(ConversationStatus.WORKING, tools_running=2),
        late.id: StatusMark(ConversationStatus.WORKING, is_queued=True),
    }


def test_who_works_in_the_background_is_told_to_all_that_it_works_for(person):
    place, other = RowFactory(person), RowFactory(person)
    top = place.turn("completed")
    awaited = set_to_work(top)
    detached = set_to_work(top, is_detached=True)
    place.call(detached, "digs", "running")
    below = set_to_work(awaited, is_detached=True)
    ended = set_to_work(top, is_detached=True)
    Turn.objects.filter(pk=ended.pk).update(status="completed")
    overview = conversation_status.read(
        owners={person.pk}, conversations={place.id, other.id, awaited.conversation_id}
    )
    told = {
        pk: {(work["turn_id"], work["parent_turn_id"]) for work in works}
        for pk, works in overview.background.items()
    }
    assert told == {
        place.id: {(str(detached.pk), str(top.pk)), (str(below.pk), str(top.pk))},
        awaited.conversation_id: {(str(below.pk), str(awaited.pk))},
    }
    (work,) = [
        work for work in overview.background[place.id] if work["turn_id"] == str(detached.pk)
    ]
    assert work["tools"] == [{"tool_name": "quick", "tool_title": ""}]
    assert work["elapsed_ms"] >= 0
    assert (work["conversation_id"], work["status"]) == (str(detached.conversation_id), "running")


def test_a_question_of_a_sub_agent_is_told_to_all_that_it_works_for(person):
    place = RowFactory(person)
    top = place.turn("completed")
    middle = set_to_work(top, is_detached=True)
    below = set_to_work(middle)
    ask(below)
    overview = conversation_status.read(
        owners={person.pk}, conversations={place.id, middle.conversation_id, below.conversation_id}
    )
    assert overview.marks[person.pk] == {
        place.id: StatusMark(ConversationStatus.ASKING, (below.conversation_id,))
    }
    told = {
        pk: [(question["parent_turn_id"], question["parent_tool_id"]) for question in questions]
        for pk, questions in overview.questions.items()
    }
    assert told == {
        place.id: [(str(top.pk), "asks-0")],
        middle.conversation_id: [(str(middle.pk), "asks-1")],
    }
    (question,) = overview.questions[place.id]
    assert (question["turn_id"], question["tool_id"]) == (str(below.pk), "q")
    assert question["conversation_id"] == str(below.conversation_id)
    assert (question["agent"], question["tool_name"]) == ("digger", "exec")
    assert question["input"] == {"command": "rm -r /"}
    assert question["can_remember"] is True


def test_a_detached_sub_agent_at_work_marks_the_conversation_that_it_works_for(person):
    place = RowFactory(person)
    set_to_work(place.turn("completed"), is_detached=True)
    assert marks_of(person) == {place.id: StatusMark(ConversationStatus.WORKING)}


def test_the_latest_conversation_of_each_owner_is_not_one_in_which_a_sub_agent_works(person):
    stranger = User.objects.create_user("eve")
    theirs = Conversation.objects.create(owner=stranger)
    Conversation.objects.create(owner=person, title="First")
    second = Conversation.objects.create(owner=person, title="Second")
    set_to_work(RowFactory(conversation=second).turn("running"))
    latest = conversation_status.read(owners={person.pk, stranger.pk}).latest
    assert latest == {person.pk: second, stranger.pk: theirs}


def test_questions_of_another_program_and_of_turns_that_are_gone_are_nobodys(person):
    ended = RowFactory(person).turn("completed")
    ask(ended)
    ask(ended, "elsewhere", group="not a turn")
    assert marks_of(person) == {}


def test_no_crowd_of_questions_hides_those_of_another_user(person):
    crowded = RowFactory(User.objects.create_user("eve")).turn("running")
    older = ask(crowded)
    fields = {field.attname: getattr(older, field.attname) for field in Approval._meta.fields}
    Approval.objects.bulk_create(
        Approval(**{**fields, "id": None, "call_id": f"q{number}"}) for number in range(1_200)
    )
    place = RowFactory(person)
    ask(place.turn("running"))
    assert marks_of(person) == {place.id: StatusMark(ConversationStatus.ASKING, (place.id,))}


def test_what_is_asked_below_a_conversation_is_told_to_whoever_looks_at_it(person):
    place = RowFactory(person)
    ask(set_to_work(place.turn("running")))
    overview = conversation_status.read(conversations={place.id})
    assert [question["tool_id"] for question in overview.questions[place.id]] == ["q"]


def test_however_many_conversations_there_are_the_queries_are_a_handful(
    person, django_assert_max_num_queries
):
    for _ in range(20):
        ask(set_to_work(RowFactory(person).turn("running")))
    with django_assert_max_num_queries(6):
        conversation_status.read(owners={person.pk}, conversations=set())


def test_what_was_interrupted_is_marked_without_a_look_at_what_was_said(
    person, django_assert_num_queries
):
    places = [RowFactory(person) for _ in range(20)]
    for place in places:
        place.turn("interrupted")
    with django_assert_num_queries(4) as asked:
        overview = conversation_status.read(owners={person.pk})
    assert overview.marks[person.pk] == {
        place.id: StatusMark(ConversationStatus.INTERRUPTED) for place in places
    }
    assert not [query for query in asked if '"user_message"' in query["sql"]]


async def test_the_list_of_conversations_says_how_each_stands(person):
    await run_in_db_thread(lambda: ask(RowFactory(person).turn("running")))()
    await run_in_db_thread(lambda: RowFactory(person))()
    listed = await selectors.list_conversations(user=person)
    assert sorted((row.standing, row.asked) for row in listed) == [("", 0), ("asking", 1)]
