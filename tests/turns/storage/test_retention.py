"""`manage.py prune`: what goes, what stays, and that a conversation goes on as if nothing had happened."""

import threading
from datetime import timedelta
from io import StringIO

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from governance.models import Approval, ToolCall
from tests.bulk_history import BulkHistory, insert_history
from tests.support import eventually_sync
from tests.turns.row_factory import RowFactory, make_question, make_repair, said, use
from tests.turns.support import ChatDriver, in_database
from turns import selectors
from turns.management.commands import prune
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
    ToolReport,
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
    turn = factory.turn(status, queued_at=at, ended_at=at, error_detail="400", **fields)
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
    make_repair(turn, kind="x", cause="x", found_when="x", at=at)
    make_question(
        turn,
        f"c{turn.number}",
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


@pytest.fixture(autouse=True)
def no_progress(monkeypatch):
    """However slow the machine is: how far it is, is said by the one test about that."""
    monkeypatch.setattr(prune, "REPORT_EVERY", 3_600.0)


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
    counted = "2 turns, 6 events, 4 messages, 2 calls, 0 attachments, 0 conversations, 0 processes."
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
        assert (turn.user_message, turn.error_detail) == ("", "")
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
    first = await chat.play([call("a", "quick")], [text("Done.")])
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
    old = Process.objects.create(host="old", pid=1, ended_at=timezone.now() - OLD)
    ToolReport.objects.create(process=old)
    counted = (
        ": 3 turns, 9 events, 6 messages, 3 calls, 0 attachments, 2 conversations, 1 processes."
    )
    assert counted in run("--days", "90", "--conversations", "--dry-run")
    assert counted in run("--days", "90", "--conversations")
    left = set(Conversation.objects.values_list("pk", flat=True))
    assert left == {taken_up.id, held.id, young_child.id}
    assert ToolCall.objects.count() == 0
    assert Approval.objects.count() == 1
    assert Process.objects.count() == ToolReport.objects.count() == 0


def test_what_is_left_of_a_deleted_conversation_goes_with_prune(ada):
    deleted, just_deleted, kept = RowFactory(ada), RowFactory(ada), RowFactory(ada)
    for factory, age in ((deleted, OLD), (just_deleted, timedelta(0))):
        a_turn(factory)
        grow_old(factory)
        at = timezone.now() - age
        Conversation.objects.filter(pk=factory.id).update(deleted_at=at, emptied_at=at)
        list(retention.empty_conversations([factory.id]))
    a_turn(kept, age=timedelta(0))
    assert ToolCall.objects.filter(input={}, result="").count() == 2
    run("--days", "90")
    assert set(Conversation.objects.values_list("pk", flat=True)) == {just_deleted.id, kept.id}
    assert ToolCall.objects.count() == 2


def test_a_deleted_conversation_takes_along_what_began_below_it_meanwhile(ada):
    above, below, deeper = (RowFactory(ada) for _ in range(3))
    for factory, parent in ((above, None), (below, above.id), (deeper, below.id)):
        a_turn(factory)
        emptied = {"parent": parent, "emptied_at": timezone.now() - OLD}
        Conversation.objects.filter(pk=factory.id).update(**emptied)
        grow_old(factory)
    Conversation.objects.filter(pk=above.id).update(deleted_at=timezone.now() - OLD)
    run("--days", "90")
    assert not Conversation.objects.exists()


def test_a_conversation_that_is_taken_up_while_others_are_deleted_is_left_alone(ada, monkeypatch):
    ended, begun = RowFactory(ada), RowFactory(ada)
    for factory in (ended, begun):
        a_turn(factory)
        grow_old(factory)
    find = retention._idle_conversations

    def then_take_up(before, **which):
        found = find(before, **which)
        a_turn(ended, age=timedelta(0))
        grow_old(ended, timedelta(0))
        a_turn(begun, "running", age=timedelta(0))
        Turn.objects.filter(status="running").update(ended_at=None)
        return found

    monkeypatch.setattr(retention, "_idle_conversations", then_take_up)
    counted = ": 2 turns, 6 events, 4 messages, 2 calls, 0 attachments, 0 conversations,"
    assert counted in run("--days", "90", "--conversations")
    assert set(Conversation.objects.values_list("pk", flat=True)) == {ended.id, begun.id}
    for factory in (ended, begun):
        young = Turn.objects.filter(conversation=factory.id).latest("number")
        assert Event.objects.filter(turn=young).count() == 3
        assert Message.objects.filter(turn=young).count() == 2


def a_past(ada, *, turns: int = 250) -> RowFactory:
    """Old turns of one conversation, each with everything that may belong to one."""
    factory = RowFactory(ada)
    a_turn(factory)
    insert_history(
        lambda statement: connection.cursor().execute(statement),
        connection.vendor,
        factory.id,
        BulkHistory(conversations=1, turns_each=turns),
    )
    return factory


def test_a_batch_takes_few_statements_however_many_turns_it_has(ada, django_assert_num_queries):
    a_past(ada)
    clock = 2 if connection.vendor == "postgresql" else 0
    with django_assert_num_queries(
        5 + clock
    ):  # conversations, their parents, contents, unclaimed files, processes
        planned = retention.prune(timedelta(days=90), is_dry_run=True)
    assert (planned.turns, planned.events, planned.messages, planned.calls) == (251, 753, 502, 251)
    batches: list[int] = []
    statements: list[int] = []

    def report(done: retention.Pruned, planned: retention.Pruned) -> None:
        batches.append(done.turns)
        statements.append(len(queries.captured_queries))

    with CaptureQueriesContext(connection) as queries:
        retention.prune(timedelta(days=90), report=report)
    assert batches == [100, 200, 251]
    assert statements[-1] - statements[-2] <= statements[1] - statements[0] <= 25


def test_a_deleted_conversation_is_emptied_in_pieces_of_few_statements_each(ada):
    factory = a_past(ada)
    long = BulkHistory(conversations=1, turns_each=250).conversation_id()
    statements: list[int] = []
    with CaptureQueriesContext(connection) as queries:
        for _piece in retention.empty_conversations([factory.id, long]):
            statements.append(len(queries.captured_queries))
    steps = [more - less for less, more in zip([0, *statements], statements, strict=False)]
    assert len(steps) == 2 * (1 + 3)  # the events of a batch, and the rest of it
    assert max(steps) <= 25
    assert not Event.objects.exists()
    assert not Message.objects.exists()


def test_long_turns_make_small_batches(ada):
    factory = a_past(ada, turns=9)
    turns = Turn.objects.filter(conversation__owner=ada)
    turns.update(steps=retention.PIECE // 4, tool_call_count=retention.PIECE // 4)
    turns.filter(conversation=factory.id).update(steps=retention.PIECE * 2)
    batches: list[int] = []
    retention.prune(timedelta(days=90), report=lambda done, _planned: batches.append(done.turns))
    steps = [more - less for less, more in zip([0, *batches], batches, strict=False)]
    assert sorted(steps) == [1, 1, 2, 2, 2, 2]


def test_an_interrupted_run_says_what_it_has_done_and_the_next_one_goes_on(ada, monkeypatch):
    a_past(ada)
    monkeypatch.setattr(prune, "REPORT_EVERY", 0.0)
    pauses = iter([None])

    def interrupted(seconds: float) -> None:
        if next(pauses, "a signal") is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(retention.time, "sleep", interrupted)
    said = StringIO()
    with pytest.raises(SystemExit) as exit_code:
        call_command("prune", "--days", "90", stdout=said)
    assert exit_code.value.code == prune.INTERRUPTED
    counts = "200 turns, 600 events, 400 messages, 200 calls, 0 attachments, 0 conversations, 0 processes"
    assert said.getvalue().splitlines() == [
        "100 of 251 turns",
        "200 of 251 turns",
        f"Interrupted. Deleted: {counts}. Run it again to go on.",
    ]
    assert ToolCall.objects.count() == Turn.objects.exclude(user_message="").count() == 51
    monkeypatch.undo()
    assert "Deleted: 51 turns, 153 events" in run("--days", "90")


@pytest.mark.skipif(connection.vendor != "sqlite", reason="Only SQLite keeps moments as texts.")
def test_one_run_deletes_what_another_program_has_dated(ada, monkeypatch):
    """'00:00:00.123' is read as '00:00:00.123000', which as a text is more."""
    monkeypatch.setattr(retention, "BATCH", 1)
    factory = RowFactory(ada)
    for _ in range(4):
        a_turn(factory)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE turns_turn SET ended_at = '2020-01-01 00:00:00.123'")
    assert run("--days", "90").startswith("Deleted: 4 turns")


def test_a_conversation_in_use_holds_nobody_elses_turns_up(ada):
    if connection.vendor != "postgresql":
        pytest.skip("SQLite locks no rows")
    used, free = RowFactory(ada), RowFactory(ada)
    first, second = a_turn(used), a_turn(free)
    emptied_first: list[bool] = []
    done = threading.Event()

    def prune_elsewhere() -> None:
        retention.prune(timedelta(days=90))
        done.set()
        connection.close()

    with transaction.atomic():
        Conversation.objects.select_for_update().get(pk=used.id)
        thread = threading.Thread(target=prune_elsewhere)
        thread.start()
        assert eventually_sync(lambda: not Message.objects.filter(turn=second).exists())
        emptied_first.append(Message.objects.filter(turn=first).exists())
        assert not done.is_set()
    thread.join(timeout=30)
    assert emptied_first == [True]
    assert not Message.objects.filter(turn=first).exists()


@pytest.mark.parametrize("wrong", [("--days", "0"), ("--days", "9", "--pause", "-1")])
def test_a_senseless_age_is_refused(wrong):
    with pytest.raises(CommandError):
        call_command("prune", *wrong)
