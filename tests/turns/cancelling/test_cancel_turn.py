"""Cancelling a turn: over within a second whatever its tools do, once, nothing after it (C1, C2, C5, C7)."""

import asyncio
import uuid
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import AbstractUser, Permission
from django.db.models import F

from governance import CancelSource
from governance.selectors import CallRow
from tests.support import PATIENCE, eventually
from tests.turns.row_factory import RowFactory
from tests.turns.support import PROMISED_MS, ChatDriver, FakeTools, RecordingSink, in_database, row
from turns import selectors, services
from turns.cancelling import cancel_requests, commands
from turns.cancelling.commands import CancelCommand
from turns.core.turns import ending_of
from turns.endings.turn_endings import end_turn
from turns.models import CancelRequest, Operation, Turn
from turns.queueing import queue
from turns.services import OpOutcome
from turns.testing import call, gate, partial_call, text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """A slow machine does not make a second word a late one."""
    monkeypatch.setattr(commands, "SAID_AGAIN_WITHIN", timedelta(minutes=1))


async def _long_ago(turn_id: uuid.UUID) -> None:
    """Let the end of a turn be an hour old."""
    turn = Turn.objects.filter(pk=turn_id)
    await in_database(lambda: turn.update(ended_at=F("ended_at") - timedelta(hours=1)))


async def assert_settled(
    chat: ChatDriver, turn_id: uuid.UUID, *, within_ms: float = PROMISED_MS, **fields
) -> CancelRequest:
    request = await chat.request(turn_id)
    assert request.settled_ms <= within_ms
    assert request.outcome == "cancelled"
    for name, value in fields.items():
        assert getattr(request, name) == value
    return request


@pytest.mark.parametrize(
    ("tool", "status", "disposition"),
    [
        ("held", "cancelled", "settled"),
        ("stubborn", "abandoned", "indeterminate"),
        ("blocked", "abandoned", "indeterminate"),
        ("deaf", "cancelled", "settled"),
    ],
)
async def test_a_turn_ends_within_a_second_whatever_its_tool_does(
    chat: ChatDriver, tool, status, disposition
):
    model = chat.use_script([text("Working."), call("c1", tool)], [text("never said")])
    turn_id = await chat.say()
    await chat.running(turn_id, "c1")
    if tool == "deaf":  # its worker takes a while to start
        await chat.sink.until("tool_progress", within=PATIENCE)
    receipt = await chat.cancel(turn_id)
    assert (receipt.outcome, receipt.status) == (OpOutcome.ACCEPTED, "cancelling")
    turn = await chat.ended(turn_id)
    assert (turn.status, turn.ended_by_reason, turn.ended_by_source, turn.ended_by_name) == (
        "cancelled",
        "user",
        "button",
        "ada",
    )
    made = (await chat.calls(turn_id))["c1"]
    if tool == "deaf" and made.status == "abandoned":  # a slow machine ends its worker too late
        await chat.sink.until("tool_settled", tool_id="c1")
    else:
        assert (made.status, made.disposition) == (status, disposition)
    assert made.error_type == "cancelled"
    assert made.result.startswith("[CANCELLED]")
    assert (made.ended_by_reason, made.ended_by_source, made.ended_by_name) == (
        "user",
        "button",
        "ada",
    )
    await assert_settled(chat, turn_id, running_tools=[tool], reason="user", source="button")
    assert len(model.requests) == 1
    abort = chat.sink.find("turn_abort", turn_id=str(turn_id))
    assert (abort["reason"], abort["source"], abort["by"]) == ("user", "button", "ada")


async def test_a_command_dies_with_its_grandchildren(chat: ChatDriver, settings):
    # How long the kernel takes to end them is not the matter here.
    settings.GOVERNANCE_CANCEL_GRACE = settings.TURNS_CANCEL_BOUND = PATIENCE
    nap = f"600.{uuid.uuid4().int % 10**9}"  # found by it in the process table, in whatever sandbox
    command = (
        f"trap '' TERM; (trap '' TERM; sleep {nap} & sleep {nap}; :) & echo ready; sleep {nap}"
    )
    chat.use_script([call("c1", "exec", command=command)])
    turn_id = await chat.say()
    await eventually(lambda: asyncio.to_thread(lambda: count_naps(nap) == 3), timeout=PATIENCE)
    await chat.sink.until("tool_progress")
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    await assert_settled(chat, turn_id, within_ms=PATIENCE * 1_000)
    made = (await chat.calls(turn_id))["c1"]
    assert (made.status, made.disposition) == ("cancelled", "settled")
    assert "ready" in made.result
    await eventually(lambda: asyncio.to_thread(lambda: count_naps(nap) == 0))


def count_naps(nap: str) -> int:
    """How many processes sleep that long."""
    count = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            count += file.read_bytes().split(b"\0")[:2] == [b"sleep", nap.encode()]
    return count


async def test_of_three_calls_the_finished_one_keeps_its_result(
    chat: ChatDriver, fake_tools: FakeTools
):
    model = chat.use_script(
        [call("a", "alone"), call("b", "quick", text="real"), call("c", "alone"), call("d", "held")]
    )
    turn_id = await chat.say()
    await chat.running(turn_id, "a")
    fake_tools.open("a")
    await chat.running(turn_id, "c")
    await chat.cancel(turn_id)
    turn = await chat.ended(turn_id)
    assert turn.status == "cancelled"
    assert len(model.requests) == 1
    messages = await chat.history()
    results = {block.tool_use_id: block for block in messages[2].tool_results}
    assert list(results) == ["a", "b", "c", "d"]
    assert results["a"].content == "a finished"
    calls = await chat.calls(turn_id)
    for finished in ("a", "b"):
        if calls[finished].status == "succeeded":
            assert not results[finished].is_error
    assert calls["c"].status == "cancelled"
    for never_ran in [name for name in "bd" if calls[name].status == "not_started"]:
        assert calls[never_ran].disposition == "not_started"
        assert never_ran not in fake_tools.started


async def test_what_waits_for_a_slot_is_not_started(chat: ChatDriver, fake_tools: FakeTools):
    turn_id = await chat.begin([call("a", "alone"), call("b", "alone"), call("c", "alone")])
    await chat.cancel(turn_id)
    await chat.ended(turn_id)
    statuses = {name: made.status for name, made in (await chat.calls(turn_id)).items()}
    assert statuses == {"a": "cancelled", "b": "not_started", "c": "not_started"}
    assert fake_tools.started == ["a"]
    request = await chat.request(turn_id)
    assert request.running_tools == ["alone", "alone", "alone"]


async def test_a_result_that_comes_in_the_grace_is_the_real_one(chat: ChatDriver):
    turn_id = await chat.begin([call("c1", "graceful")])
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    made = (await chat.calls(turn_id))["c1"]
    assert (made.status, made.result) == ("succeeded", "saved just in time")


async def test_before_the_first_word_only_the_users_message_stays(chat: ChatDriver):
    hold = gate()
    model = chat.use_script([hold, text("never said")])
    turn_id = await chat.say("my question")
    await asyncio.wait_for(hold.reached.wait(), PATIENCE)
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    assert [(m.role, m.texts[0].text) for m in await chat.history()] == [("user", "my question")]
    assert (model.cancelled, model.closed) == (1, 1)


async def test_text_said_so_far_is_kept_and_marked(chat: ChatDriver):
    chat.use_script([text("Once upon "), text("a time"), partial_call("c1", "quick"), gate()])
    turn_id = await chat.say()
    await chat.sink.until("text_delta")
    await eventually(
        lambda: (
            "".join(e["text"] for e in chat.sink.events if e["type"] == "text_delta")
            == "Once upon a time"
        )
    )
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    said = chat.sink.find("message", turn_id=str(turn_id))
    assert said["interrupted"] is True
    assert said["content"] == [{"type": "text", "text": "Once upon a time"}]
    assert await chat.calls(turn_id) == {}
    assert (await chat.history())[-1].texts[0].text == "Once upon a time"


async def test_a_model_that_ignores_its_cancel_does_not_delay_the_end(chat: ChatDriver):
    hold = gate(ignores_cancel=True)
    chat.use_script([text("Hm"), hold])
    turn_id = await chat.say()
    await asyncio.wait_for(hold.reached.wait(), PATIENCE)
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    await assert_settled(chat, turn_id)
    hold.opening.set()


async def test_what_a_tool_comes_to_after_the_bound_is_recorded_as_late(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.GOVERNANCE_CANCEL_GRACE = 30.0  # longer than the turn may take to end
    settings.TURNS_CANCEL_BOUND = 0.05
    turn_id = await chat.begin([call("c1", "stubborn"), call("c2", "held")], running=["c1", "c2"])
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    given_up = (await chat.calls(turn_id))["c1"]
    assert (given_up.status, given_up.late_kind) == ("abandoned", "")
    fake_tools.open("c1")

    async def late() -> CallRow | None:
        row = (await chat.calls(turn_id))["c1"]
        return row if row.late_kind else None

    settled = await eventually(late)
    assert (settled.status, settled.result) == ("abandoned", given_up.result)
    assert (settled.late_kind, settled.late_text) == ("returned", "c1 finished late")


async def test_what_was_queued_before_never_starts_and_what_comes_after_does(
    chat: ChatDriver, fake_tools: FakeTools
):
    model = chat.use_script([call("c1", "stubborn")], [text("The later answer.")])
    first = await chat.say("first")
    await chat.running(first, "c1")
    queued = [await chat.say("second"), await chat.say("third")]
    await chat.cancel(first)
    later = await chat.say("later")
    assert (await chat.ended(later)).status == "completed"
    for turn_id in queued:
        turn = await row(Turn, pk=turn_id)
        assert (turn.status, turn.started_at, turn.ended_by_reason) == ("cancelled", None, "user")
    ends = [e["turn_id"] for e in chat.sink.stored(chat.id) if e["type"] == "turn_end"]
    assert ends == [str(turn_id) for turn_id in (*queued, first, later)]
    texts = [m.texts[-1].text for m in model.requests[-1].messages if m.texts]
    assert texts == ["first", "later"]


async def test_a_queued_turn_is_cancelled_with_what_waits_behind_it(
    chat: ChatDriver, fake_tools: FakeTools
):
    first = await chat.begin([call("c1", "held")], [text("Done.")])
    second, third = await chat.say("second"), await chat.say("third")
    receipt = await chat.cancel(second)
    assert (receipt.outcome, receipt.status) == (OpOutcome.ACCEPTED, "cancelled")
    await assert_settled(chat, second)
    assert {(await row(Turn, pk=pk)).status for pk in (second, third)} == {"cancelled"}
    fake_tools.open("c1")
    assert (await chat.ended(first)).status == "completed"


async def test_an_old_id_never_stops_the_newer_turn(chat: ChatDriver, fake_tools: FakeTools):
    chat.use_script([text("Answer.")], [call("c1", "held")], [text("Done.")])
    old = (await chat.run()).pk
    new = await chat.say()
    await chat.running(new, "c1")
    assert (await chat.cancel(old)).outcome is OpOutcome.ALREADY_FINISHED
    assert (await chat.cancel(uuid.uuid4())).outcome is OpOutcome.NOT_FOUND
    assert (await row(Turn, pk=new)).status == "running"
    fake_tools.open("c1")
    assert (await chat.ended(new)).status == "completed"
    assert await in_database(CancelRequest.objects.count) == 0


async def test_somebody_elses_turn_does_not_exist(chat: ChatDriver, fake_tools: FakeTools, eve):
    turn_id = await chat.begin([call("c1", "held")], [text("Done.")])
    receipts = [
        await chat.cancel(turn_id, user=eve, op_id="x"),
        await chat.cancel_call(turn_id, "c1", user=eve, op_id="y"),
    ]
    deadline = await services.set_deadline(turn_id=turn_id, tool_id="c1", user=eve, timeout_ms=1)
    assert {r.outcome for r in (*receipts, deadline)} == {OpOutcome.NOT_FOUND}
    assert [receipt.notifications.batches for receipt in receipts] == [[], []]
    assert await in_database(CancelRequest.objects.count) == 0
    assert await in_database(Operation.objects.count) == 0
    fake_tools.open("c1")
    assert (await chat.ended(turn_id)).status == "completed"


async def test_an_operator_may_cancel_and_is_recorded_as_one(chat: ChatDriver, operator):
    turn_id = await chat.begin([call("c1", "held")])
    receipt = await chat.cancel(turn_id, user=operator, source=CancelSource.API, note="too dear")
    assert receipt.outcome is OpOutcome.ACCEPTED
    turn = await chat.ended(turn_id)
    assert (turn.ended_by_reason, turn.ended_by_name) == ("admin", "olga")
    request = await assert_settled(chat, turn_id, reason="admin", source="api", note="too dear")
    assert (request.by_id, request.by_name) == (operator.pk, "olga")
    assert (await chat.calls(turn_id))["c1"].ended_by_reason == "admin"


@pytest.mark.parametrize("lacks", ["the permission", "the staff status"])
async def test_who_lacks_half_of_what_an_operator_needs_is_a_stranger(
    chat: ChatDriver, fake_tools: FakeTools, eve, lacks
):
    eve.is_staff = lacks == "the permission"
    await in_database(eve.save)
    if not eve.is_staff:
        cancel_any = await Permission.objects.aget(codename="cancel_any")
        await eve.user_permissions.aadd(cancel_any)
    turn_id = await chat.begin([call("c1", "held")], [text("Done.")])
    assert (await chat.cancel(turn_id, user=eve)).outcome is OpOutcome.NOT_FOUND
    fake_tools.open("c1")
    assert (await chat.ended(turn_id)).status == "completed"


async def test_twice_is_the_same_answer_and_one_row(chat: ChatDriver):
    turn_id = await chat.begin([call("c1", "stubborn")])
    first, second = [
        await chat.cancel(turn_id, source=s) for s in (CancelSource.BUTTON, CancelSource.API)
    ]
    assert (first.outcome, first.status) == (second.outcome, second.status)
    await chat.ended(turn_id)
    await assert_settled(chat, turn_id, source="button")
    assert await in_database(CancelRequest.objects.count) == 1
    assert (await chat.cancel(turn_id)).outcome is OpOutcome.ALREADY_FINISHED
    assert await in_database(CancelRequest.objects.count) == 1


async def test_many_at_once_are_one(chat: ChatDriver):
    turn_id = await chat.begin([call("c1", "stubborn")])
    receipts = await asyncio.gather(*(chat.cancel(turn_id, op_id="same") for _ in range(5)))
    assert {receipt.outcome for receipt in receipts} == {OpOutcome.ACCEPTED}
    await chat.ended(turn_id)
    assert await in_database(CancelRequest.objects.count) == 1
    assert await in_database(Operation.objects.count) == 1


async def test_a_repeated_operation_gets_its_first_answer(chat: ChatDriver):
    turn_id = await chat.begin([call("c1", "held")], [text("again")])
    assert (await chat.cancel(turn_id, op_id="op")).outcome is OpOutcome.ACCEPTED
    await chat.ended(turn_id)
    assert (await chat.cancel(turn_id, op_id="op")).outcome is OpOutcome.ACCEPTED
    assert (await chat.cancel(turn_id, op_id="op2")).outcome is OpOutcome.ALREADY_FINISHED
    assert (await chat.cancel(turn_id, op_id="op2")).outcome is OpOutcome.ALREADY_FINISHED


async def test_an_operation_id_of_an_earlier_turn_does_not_stand_for_a_later_one(chat: ChatDriver):
    chat.use_script([call("c1", "held")], [call("c2", "held")])
    for name in ("c1", "c2"):
        turn_id = await chat.say()
        await chat.running(turn_id, name)
        receipt = await chat.cancel(turn_id, op_id="same")
        assert (receipt.outcome, receipt.status) == (OpOutcome.ACCEPTED, "cancelling")
        assert (await chat.ended(turn_id)).status == "cancelled"
        assert (await chat.cancel(turn_id, op_id="other")).outcome is OpOutcome.ALREADY_FINISHED


async def test_a_note_that_no_database_can_store_does_not_hold_up_the_cancel(chat: ChatDriver):
    turn_id = await chat.begin([call("c1", "held")])
    assert (await chat.cancel(turn_id, note="\ud800\0")).outcome is OpOutcome.ACCEPTED
    assert (await chat.ended(turn_id)).status == "cancelled"


@pytest.mark.parametrize(
    ("word", "source"),
    [
        *((word, "typed") for word in ("stop", "ok nvm", "Please cancel!", "just stop it")),
        *((word, "typed") for word in ("could you please stop", "хватит", "hou op!")),
        ("never mind", "voice"),
    ],
)
async def test_a_cancel_word_cancels_without_asking_the_model(
    chat: ChatDriver, settings, word, source
):
    settings.TURNS_CANCEL_WORDS = ["Hou op"]
    model = chat.use_script([call("c1", "held")])
    turn_id = await chat.say()
    await chat.running(turn_id, "c1")
    received = await services.receive_message(
        conversation_id=chat.id, user=chat.user, text=word, source=source
    )
    assert (received.cancelled, received.turn_id) == (True, turn_id)
    turn = await chat.ended(turn_id)
    assert (turn.status, turn.ended_by_source) == ("cancelled", source)
    if source == "typed":  # what was spoken is answered by the chat model
        assert len(model.requests) == 1
    assert await in_database(Turn.objects.count) == 1


async def test_with_nothing_active_a_cancel_word_is_an_ordinary_message(chat: ChatDriver):
    model = chat.use_script([text("There is nothing to stop.")])
    turn = await chat.run("stop")
    assert turn.status == "completed"
    assert model.requests[0].messages[-1].texts[0].text == "stop"


async def test_an_impatient_second_word_has_the_answer_of_the_first(chat: ChatDriver):
    model = chat.use_script([call("c1", "held")], [text("never asked")])
    turn_id = await chat.say()
    await chat.running(turn_id, "c1")
    for number in range(4):
        if number == 2:  # the first two come at once, the others find nothing active any more
            await chat.ended(turn_id)
        received = await services.receive_message(
            conversation_id=chat.id, user=chat.user, text="stop", client_id=f"m{number}"
        )
        assert (received.turn_id, received.cancelled) == (turn_id, True)
    await _long_ago(turn_id)
    again = await services.receive_message(
        conversation_id=chat.id, user=chat.user, text="stop", client_id="m3"
    )
    assert (again.turn_id, again.cancelled) == (turn_id, True), "sent again after a lost answer"
    assert await in_database(Turn.objects.count) == 1
    assert len(model.requests) == 1
    assert (await chat.request(turn_id)).outcome == "cancelled"


async def test_a_word_right_after_the_button_means_the_same_turn(chat: ChatDriver):
    turn_id = await chat.begin([call("c1", "held")], [text("never asked")])
    await chat.cancel(turn_id)
    await chat.ended(turn_id)
    assert await chat.say("stop") == turn_id


@pytest.mark.parametrize("meanwhile", ["an hour", "hello"])
async def test_a_word_long_after_a_cancel_or_after_other_words_is_an_ordinary_message(
    chat: ChatDriver, meanwhile
):
    turn_id = await chat.begin([call("c1", "held")], [text("Hello.")], [text("Nothing runs.")])
    await chat.say("stop")
    await chat.ended(turn_id)
    if meanwhile == "hello":
        await chat.run("hello")
    else:
        await _long_ago(turn_id)
    assert (await chat.run("stop")).status == "completed"


async def test_a_word_after_a_cancel_in_another_conversation_is_an_ordinary_message(
    chat: ChatDriver, sink: RecordingSink
):
    turn_id = await chat.begin([call("c1", "held")], [text("Nothing runs.")])
    await chat.say("stop")
    await chat.ended(turn_id)
    other = await services.create_conversation(user=chat.user)
    received = await services.receive_message(conversation_id=other.id, user=chat.user, text="stop")
    assert received.cancelled is False
    await sink.until_ended(received.turn_id)


async def test_what_only_contains_a_cancel_word_is_queued(chat: ChatDriver, fake_tools: FakeTools):
    first = await chat.begin([call("c1", "held")], [text("Done.")], [text("Music goes on.")])
    second = await chat.say("don't stop the music")
    assert second != first
    fake_tools.open("c1")
    assert (await chat.ended(second)).status == "completed"


async def test_a_cancel_word_sent_again_after_a_lost_answer_changes_nothing(chat: ChatDriver):
    turn_id = await chat.begin([call("c1", "held")], [text("never asked")])
    for _ in range(2):
        received = await services.receive_message(
            conversation_id=chat.id, user=chat.user, text="stop", client_id="m1"
        )
        assert (received.turn_id, received.cancelled) == (turn_id, True)
        await chat.ended(turn_id)
    assert await in_database(Turn.objects.count) == 1


async def test_a_message_that_was_a_turn_never_cancels_when_it_is_sent_again(
    chat: ChatDriver, fake_tools: FakeTools
):
    chat.use_script([call("c1", "held")], [text("Done.")])
    turn_id = await chat.say("stop", client_id="m1")
    await chat.running(turn_id, "c1")
    received = await services.receive_message(
        conversation_id=chat.id, user=chat.user, text="stop", client_id="m1"
    )
    assert (received.turn_id, received.cancelled, received.is_new) == (turn_id, False, False)
    fake_tools.open("c1")
    assert (await chat.ended(turn_id)).status == "completed"


async def test_a_request_without_a_nudge_is_obeyed_at_the_next_poll(chat: ChatDriver, settings):
    settings.TURNS_POLL_INTERVAL = 0.05
    turn_id = await chat.begin([call("c1", "held")], [text("never said")])
    command = CancelCommand(user=chat.user, source=CancelSource.API)
    await in_database(lambda: commands.request_turn_cancel(turn_id, command))
    assert (await chat.ended(turn_id)).status == "cancelled"
    await assert_settled(chat, turn_id, source="api")


async def test_nothing_starts_after_a_request_was_stored_even_before_its_nudge(
    chat: ChatDriver, settings, fake_tools: FakeTools
):
    """The journal looks at the row with every write, so neither a tool nor a model request begins."""
    settings.TURNS_POLL_INTERVAL = 3600
    hold = gate()
    model = chat.use_script([hold, call("c1", "quick"), call("c2", "alone")], [text("never said")])
    turn_id = await chat.say()
    await asyncio.wait_for(hold.reached.wait(), PATIENCE)
    command = CancelCommand(user=chat.user, source=CancelSource.API)
    await in_database(lambda: commands.request_turn_cancel(turn_id, command))
    hold.opening.set()
    assert (await chat.ended(turn_id)).status == "cancelled"
    assert fake_tools.started == []
    assert len(model.requests) == 1
    assert {c.status for c in (await chat.calls(turn_id)).values()} <= {"not_started"}


async def test_a_request_before_the_claim_counts(chat: ChatDriver):
    """Stored while the turn waits: it ends at once and is never claimed; the next message runs."""
    model = chat.use_script([text("Answer.")])
    enqueued = await in_database(
        lambda: queue.enqueue(chat.id, text="too late", source="typed", client_id=None)
    )
    receipt = await chat.cancel(enqueued.turn.pk)
    assert receipt.status == "cancelled"
    await chat.say("later")
    await chat.sink.until("turn_end", status="completed")
    assert (await row(Turn, pk=enqueued.turn.pk)).started_at is None
    assert [m.texts[0].text for m in model.requests[0].messages] == ["later"]


async def test_after_the_step_the_step_ends_and_no_other_begins(
    chat: ChatDriver, fake_tools: FakeTools
):
    model = chat.use_script([call("c1", "held")], [text("never said")])
    turn_id = await chat.say()
    await chat.running(turn_id, "c1")
    receipt = await chat.cancel(turn_id, mode="after_step")
    assert receipt.outcome is OpOutcome.ACCEPTED
    assert not chat.sink.find("tool_result")
    fake_tools.open("c1")
    assert (await chat.ended(turn_id)).status == "cancelled"
    assert (await chat.calls(turn_id))["c1"].status == "succeeded"
    assert len(model.requests) == 1


async def test_all_who_watch_are_told_once_that_a_turn_ends_after_its_step(
    chat: ChatDriver, fake_tools: FakeTools, operator: AbstractUser
):
    async def is_known() -> bool:
        snapshot = await selectors.snapshot(conversation_id=chat.id, user=operator)
        return snapshot["active_turns"][0]["ends_after_step"]

    turn_id = await chat.begin([call("c1", "held")], [text("never said")])
    assert not await is_known()
    for user in (chat.user, operator):
        await chat.cancel(turn_id, mode="after_step", user=user)
    told = await chat.sink.until("turn_ends_after_step", turn_id=str(turn_id))
    assert (told["reason"], told["source"], told["by"]) == ("user", "button", "ada")
    assert await is_known()
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    await chat.check()  # the protocol allows one of these events


async def test_what_was_accepted_to_end_after_the_step_does_so_before_its_wakeup(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.TURNS_POLL_INTERVAL = 3600
    model = chat.use_script([call("c1", "held")], [text("never said")])
    turn_id = await chat.say()
    await chat.running(turn_id, "c1")
    command = CancelCommand(user=chat.user, source=CancelSource.API, mode="after_step")
    await in_database(lambda: commands.request_turn_cancel(turn_id, command))
    fake_tools.open("c1")
    assert (await chat.ended(turn_id)).status == "cancelled"
    assert (await chat.calls(turn_id))["c1"].status == "succeeded"
    assert len(model.requests) == 1


async def test_now_overtakes_after_the_step(chat: ChatDriver):
    turn_id = await chat.begin([call("c1", "held")])
    await chat.cancel(turn_id, mode="after_step")
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    assert (await chat.calls(turn_id))["c1"].status == "cancelled"
    assert await in_database(CancelRequest.objects.count) == 1


async def test_who_overtakes_what_was_to_end_after_the_step_has_ended_it(
    chat: ChatDriver,
    fake_tools: FakeTools,
    operator: AbstractUser,
    caplog: pytest.LogCaptureFixture,
):
    turn_id = await chat.begin([call("c1", "held"), call("c2", "held")], running=["c1", "c2"])
    await chat.cancel(turn_id, mode="after_step", note="when it is done")
    asked = await chat.request(turn_id)
    assert asked.running_tools == ["held", "held"]
    fake_tools.open("c1")
    await chat.sink.until("tool_result", tool_id="c1")
    how = {"source": CancelSource.ADMIN, "note": "it costs too much"}
    await chat.cancel(turn_id, user=operator, **how)
    turn = await chat.ended(turn_id)
    assert (turn.ended_by_reason, turn.ended_by_source) == ("admin", "admin")
    assert turn.ended_by_name == "olga"
    request = await assert_settled(chat, turn_id, reason="admin", source="admin", mode="now")
    assert (request.pk, request.by_id, request.by_name) == (asked.pk, operator.pk, "olga")
    assert (request.note, request.running_tools) == ("it costs too much", ["held"])
    assert request.requested_at > asked.requested_at
    lines = [vars(line) for line in caplog.records if line.message == "A cancel was accepted"]
    assert [(line["mode"], line["by_id"]) for line in lines] == [
        ("after_step", chat.user.pk),
        ("now", operator.pk),
    ]


def test_who_overtakes_a_turn_whose_step_has_just_ended_has_ended_it(
    ada: AbstractUser, operator: AbstractUser
):
    """The owner has left its loop, as the first request wants it, and does not know of the second."""
    turn = RowFactory(ada).turn("running")
    by_ada = CancelCommand(user=ada, source=CancelSource.BUTTON, mode="after_step")
    commands.request_turn_cancel(turn.pk, by_ada)
    [known] = cancel_requests.pending([turn.pk])
    by_olga = CancelCommand(user=operator, source=CancelSource.ADMIN)
    commands.request_turn_cancel(turn.pk, by_olga)
    end_turn(turn.pk, ending_of(known.cancellation))
    turn.refresh_from_db()
    assert (turn.status, turn.ended_by_reason, turn.ended_by_name) == ("cancelled", "admin", "olga")


async def test_an_accepted_request_wins_over_an_answer_that_ends_after_it(
    chat: ChatDriver, settings
):
    """The answer is complete, but the request was stored first: one end, and it is the request's (30)."""
    settings.TURNS_POLL_INTERVAL = 3600
    hold = gate()
    chat.use_script([text("All of it."), hold])
    turn_id = await chat.say()
    await asyncio.wait_for(hold.reached.wait(), PATIENCE)
    command = CancelCommand(user=chat.user, source=CancelSource.API)
    await in_database(lambda: commands.request_turn_cancel(turn_id, command))
    hold.opening.set()
    turn = await chat.ended(turn_id)
    assert (turn.status, turn.ended_by_reason) == ("cancelled", "user")
    await assert_settled(chat, turn_id)


@pytest.mark.parametrize("round", range(6))
async def test_a_race_with_the_natural_end_has_one_winner(
    chat: ChatDriver, fake_tools: FakeTools, round
):
    """The request is sent at another moment of the turn in every round."""
    chat.use_script([text("a"), call("c1", "quick"), text("b")], [text("Done.")])
    moments = ["turn_start", "text_delta", "message", "tool_start", "tool_result", "turn_end"]
    turn_id = await chat.say()
    await chat.sink.until(moments[round], turn_id=str(turn_id))
    receipt = await chat.cancel(turn_id)
    turn = await chat.ended(turn_id)
    if receipt.outcome is OpOutcome.ACCEPTED:
        assert turn.status == "cancelled"
        await assert_settled(chat, turn_id)
    else:
        assert receipt.outcome is OpOutcome.ALREADY_FINISHED
        assert turn.status == "completed"
        assert await in_database(CancelRequest.objects.count) == 0
    await chat.history()


async def test_the_next_turn_is_told_of_the_interruption(chat: ChatDriver, fake_tools: FakeTools):
    model = chat.use_script(
        [
            call("a", "quick"),
            call("b", "stubborn"),
            call("w", "held"),
            call("c", "alone"),
            call("d", "alone"),
        ],
        [text("I see.")],
        [text("Fine.")],
    )
    first = await chat.say()
    await chat.running(first, "b")
    await chat.running(first, "w")
    await chat.sink.until("tool_result", tool_id="a")
    await chat.cancel(first)
    await chat.ended(first)
    await chat.run("go on")
    told = model.requests[1].messages[-1].texts[0].text
    assert "[INTERRUPTED] The previous turn did not reach its end: the user cancelled it." in told
    assert "May have run in part or whole, check before repeating: stubborn (b)." in told
    assert "Stopped before the end, no longer running: held (w)." in told
    assert "Finished, with valid results: quick (a)." in told
    assert "Not started: alone (c), alone (d)." in told
    await chat.run("and now")
    assert [block.text for block in model.requests[2].messages[-1].texts] == ["and now"]


async def test_a_queued_message_is_taken_back_alone_and_never_once_it_has_begun(
    chat: ChatDriver, fake_tools: FakeTools
):
    first = await chat.begin([call("c1", "held")], [text("Done.")], [text("Third.")])
    second, third = await chat.say("second"), await chat.say("third")
    assert (await chat.cancel(second, mode="queued")).outcome is OpOutcome.ACCEPTED
    assert (await chat.cancel(first, mode="queued")).outcome is OpOutcome.ALREADY_FINISHED
    assert (await row(Turn, pk=first)).status == "running"
    fake_tools.open("c1")
    assert (await chat.ended(first)).status == "completed"
    assert (await chat.ended(third)).status == "completed"
    turn = await row(Turn, pk=second)
    assert (turn.status, turn.started_at, turn.ended_by_reason) == ("cancelled", None, "user")


@pytest.mark.parametrize("other", ["held", "stubborn"])
async def test_results_are_stored_with_the_ending_unless_a_call_takes_its_time(
    chat: ChatDriver, fake_tools: FakeTools, other
):
    """One write for all; but a result that is there is shown while another call still has its grace (C1)."""
    turn_id = await chat.begin(
        [call("a", "held"), call("b", other)], [text("never")], running=["a", "b"]
    )
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    result = chat.sink.find("tool_result", tool_id="a")
    end = chat.sink.find("turn_end", turn_id=str(turn_id))
    assert (result["at"] == end["at"]) is (other == "held")
    assert result["at"] <= end["at"]
    assert (result["status"], result["disposition"]) == ("cancelled", "settled")
    fake_tools.open("b")
