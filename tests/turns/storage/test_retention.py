"""`manage.py prune`: what goes, what stays, and that a conversation goes on as if nothing had happened."""

from datetime import timedelta
from io import StringIO

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.utils import timezone

from governance.models import Approval, ToolCall
from tests.turns.row_factory import RowFactory, said, use
from tests.turns.support import ChatDriver, in_database
from turns import selectors
from turns.models import (
    Acknowledgement,
    CancelRequest,
    Conversation,
    DeadlineOrder,
    Event,
    Message,
    Operation,
    Process,
    Repair,
    Turn,
)
from turns.storage import retention
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

OLD = timedelta(days=100)


def a_turn(
    factory: RowFactory, status: str = "completed", *, age: timedelta = OLD, **fields
) -> Turn:
    """A turn with everything that may belong to one."""
    at = timezone.now() - age
    turn = factory.turn(status, queued_at=at, ended_at=at, **fields)
    factory.message(turn, "user", said("question"))
    factory.message(turn, "assistant", said("answer"), use(f"c{turn.number}"))
    factory.call(turn, f"c{turn.number}")
    for number in range(3):
        factory.conversation.last_seq += 1
        factory.conversation.save(update_fields=["last_seq"])
        Event.objects.create(
            conversation=factory.conversation,
            turn=turn,
            seq=factory.conversation.last_seq,
            type="turn_end",
            payload={"number": number},
            at=at,
        )
    CancelRequest.objects.create(
        turn=turn, reason="user", source="button", requested_at=at, by_name="ada"
    )
    Repair.objects.create(
        conversation=factory.conversation, turn=turn, kind="x", cause="x", found_when="x", at=at
    )
    Approval.objects.create(
        group=str(turn.pk),
        call_id=f"c{turn.number}",
        scope=str(factory.id),
        tool_name="quick",
        input={"secret": "x"},
        requested_at=at,
        decision="approved",
        by_name="ada",
    )
    Operation.objects.create(
        conversation=factory.conversation, turn=turn, op_id=str(turn.pk), outcome="accepted"
    )
    DeadlineOrder.objects.create(turn=turn, tool_id="x", timeout_ms=1)
    request = CancelRequest.objects.get(turn=turn)
    Acknowledgement.objects.create(request=request, turn=turn, said="stop", source="typed", at=at)
    return turn


def grow_old(factory: RowFactory, age: timedelta = OLD) -> None:
    Conversation.objects.filter(pk=factory.id).update(updated_at=timezone.now() - age)


def run(*arguments: str) -> str:
    said = StringIO()
    call_command("prune", *arguments, "--pause", "0", stdout=said)
    return said.getvalue()


def test_what_was_said_and_done_goes_and_the_record_of_it_stays(ada, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 1)
    monkeypatch.setattr(retention, "PIECE", 2)
    factory = RowFactory(ada)
    old, older = a_turn(factory), a_turn(factory, "cancelled", ended_by_name="ada")
    young = a_turn(factory, age=timedelta(days=1))
    factory.turn("running", queued_at=timezone.now() - OLD)
    counted = "2 turns, 6 events, 4 messages, 2 calls, 0 conversations, 0 processes."
    assert run("--days", "90", "--dry-run") == f"Would delete: {counted}\n"
    assert Event.objects.count() == 9
    assert run("--days", "90") == f"Deleted: {counted}\n"
    assert run("--days", "90").startswith("Deleted: 0 turns")
    for model in (Event, Message, Operation, DeadlineOrder, Acknowledgement):
        assert set(model.objects.values_list("turn", flat=True)) == {young.pk}, model
    assert set(ToolCall.objects.values_list("group", flat=True)) == {str(young.pk)}
    for model in (CancelRequest, Repair):
        assert model.objects.count() == 3
    for turn in (old, older):
        turn.refresh_from_db()
        assert turn.user_message == ""
        approval = Approval.objects.get(group=str(turn.pk))
        assert (approval.decision, approval.by_name, approval.input) == ("approved", "ada", {})
    assert older.ended_by_name == "ada"
    assert Turn.objects.count() == 4


def test_the_history_of_what_is_left_is_valid_and_the_page_shows_it(ada):
    factory = RowFactory(ada)
    a_turn(factory)
    factory.turn("cancelled", queued_at=timezone.now() - OLD, ended_at=timezone.now() - OLD)
    a_turn(factory, age=timedelta(days=1))
    run("--days", "90")
    shown = async_to_sync(selectors.snapshot)(conversation_id=factory.id, user=ada)
    assert len(shown["messages"]) == 2
    assert [turn["number"] for turn in shown["turns"]] == [3]
    history = async_to_sync(selectors.history)(conversation_id=factory.id, user=ada)
    assert (len(history["messages"]), history["repairs"][2:]) == (3, [])
    before = async_to_sync(selectors.reaches_back)
    assert not before(conversation_id=factory.id, after=0)
    assert before(conversation_id=factory.id, after=6)


async def test_a_pruned_conversation_goes_on(chat: ChatDriver):
    chat.use_script([call("a", "quick")], [text("Done.")])
    first = await chat.run()
    await in_database(
        lambda: Turn.objects.filter(pk=first.pk).update(ended_at=timezone.now() - OLD)
    )
    await in_database(lambda: retention.prune(timedelta(days=90)))
    model = chat.use_script([text("Hello again.")])
    turn_id = await chat.say("second")
    await chat.sink.until_ended(turn_id)
    [request] = model.requests
    assert [message.role for message in request.messages] == ["user"]


@pytest.mark.parametrize(("above", "deleted"), [("completed", 0), ("cancelled", 1)])
def test_a_report_that_is_still_due_is_kept(ada, above, deleted):
    factory, place = RowFactory(ada), RowFactory(ada)
    parent = place.turn(above)
    a_turn(factory, is_detached=True, parent=parent)
    assert run("--days", "90").startswith(f"Deleted: {deleted} turns")


def test_quiet_conversations_go_as_a_whole_and_those_of_sub_agents_first(ada):
    parent, child, taken_up = RowFactory(ada), RowFactory(ada), RowFactory(ada)
    held, young_child = RowFactory(ada), RowFactory(ada)
    Conversation.objects.filter(pk=child.id).update(parent=parent.id)
    Conversation.objects.filter(pk=young_child.id).update(parent=held.id)
    for factory in (parent, child, held):
        a_turn(factory)
        grow_old(factory)
    taken_up.turn("queued")
    grow_old(taken_up)
    Process.objects.create(host="old", pid=1, ended_at=timezone.now() - OLD)
    counted = ": 3 turns, 9 events, 6 messages, 3 calls, 2 conversations, 1 processes."
    assert counted in run("--days", "90", "--conversations", "--dry-run")
    assert counted in run("--days", "90", "--conversations")
    left = set(Conversation.objects.values_list("pk", flat=True))
    assert left == {taken_up.id, held.id, young_child.id}
    assert ToolCall.objects.count() == 0
    assert Approval.objects.count() == 1
    assert Process.objects.count() == 0


def test_a_conversation_that_is_taken_up_while_others_are_deleted_is_left_alone(ada, monkeypatch):
    ended, begun = RowFactory(ada), RowFactory(ada)
    for factory in (ended, begun):
        a_turn(factory)
        grow_old(factory)
    find = retention._quiet_conversations

    def then_take_up(before):
        found = find(before)
        a_turn(ended, age=timedelta(0))
        grow_old(ended, timedelta(0))
        a_turn(begun, "running", age=timedelta(0))
        Turn.objects.filter(status="running").update(ended_at=None)
        return found

    monkeypatch.setattr(retention, "_quiet_conversations", then_take_up)
    counted = ": 2 turns, 6 events, 4 messages, 2 calls, 0 conversations,"
    assert counted in run("--days", "90", "--conversations")
    assert set(Conversation.objects.values_list("pk", flat=True)) == {ended.id, begun.id}
    for factory in (ended, begun):
        young = Turn.objects.filter(conversation=factory.id).latest("number")
        assert Event.objects.filter(turn=young).count() == 3
        assert Message.objects.filter(turn=young).count() == 2


@pytest.mark.parametrize("wrong", [("--days", "0"), ("--days", "9", "--pause", "-1")])
def test_a_senseless_age_is_refused(wrong):
    with pytest.raises(CommandError):
        call_command("prune", *wrong)
