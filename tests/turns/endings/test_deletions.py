"""Deleting a conversation. It is hidden at once, what runs is cancelled, no word of it stays, and the record does."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.urls import reverse
from django.utils import timezone

from governance import CancelSource, ToolContext, make_tool, registry
from governance.models import Approval, ToolCall
from governance.runtime import workspace_of
from tests.staff import sign_in
from tests.support import eventually
from tests.turns.row_factory import RowFactory
from tests.turns.support import ChatDriver, FakeTools, in_database
from tests.turns.tools.scripted_agents import child, spawn, use_scripts
from turns import selectors, services
from turns.endings import deletions
from turns.exceptions import ConversationNotFound, MessageRejected, TurnNotFound
from turns.models import CancelRequest, Conversation, ConversationChange, Event, Message, Turn
from turns.running import runtime
from turns.storage import retention
from turns.testing import call, text
from turns.tools import children
from turns.tools.children import ChildRefused, Origin

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "tulip-mill-7"


async def delete(chat: ChatDriver, user: AbstractUser | None = None) -> services.Deleted:
    return await services.delete_conversation(
        conversation_id=chat.id, user=user or chat.user, source=CancelSource.API
    )


def emptied(chat: ChatDriver) -> Conversation | None:
    return Conversation.objects.filter(pk=chat.id, emptied_at__isnull=False).first()


def rows_with(word: str) -> list[str]:
    """Where in the database of the project a word still stands."""
    return [
        f"{model.__name__}: {values}"
        for label in ("turns", "governance")
        for model in apps.get_app_config(label).get_models()
        for values in model._default_manager.values()
        if word in str(values)
    ]


async def is_emptied(chat: ChatDriver) -> None:
    await eventually(lambda: in_database(lambda: emptied(chat)))


async def test_no_word_of_a_deleted_conversation_stays_and_its_record_does(chat: ChatDriver):
    chat.use_script([text(SECRET), call("c1", "quick", text=SECRET)], [text(SECRET)])
    turn = await chat.run(SECRET)
    workspace = workspace_of(str(chat.id))
    assert workspace is not None
    (workspace / "deep").mkdir(parents=True)
    (workspace / "deep" / "note.txt").write_text(SECRET)
    assert await in_database(lambda: rows_with(SECRET))

    assert (await delete(chat)).cancelled == 0
    await is_emptied(chat)

    assert await in_database(lambda: rows_with(SECRET)) == []
    assert not workspace.exists()
    kept = await in_database(lambda: ToolCall.objects.get(group=str(turn.pk)))
    assert (kept.call_id, kept.status, kept.input, kept.result) == ("c1", "succeeded", {}, "")
    ended = await in_database(lambda: Turn.objects.get(pk=turn.pk))
    assert (ended.status, ended.tool_call_count) == ("completed", 1)
    assert await in_database(Message.objects.count) == 0
    assert await in_database(Event.objects.count) == 0
    change = await in_database(ConversationChange.objects.get)
    assert (change.conversation_id, change.action, change.by_name) == (chat.id, "delete", "ada")


async def test_a_deleted_conversation_exists_for_nobody(chat: ChatDriver, operator: AbstractUser):
    turn = await chat.play([text("hi")])
    await delete(chat)

    assert await selectors.list_conversations(user=chat.user) == []
    for user in (chat.user, operator):
        with pytest.raises(ConversationNotFound):
            await selectors.snapshot(conversation_id=chat.id, user=user)
        with pytest.raises(TurnNotFound):
            await selectors.get_turn(turn_id=turn.pk, user=user)
    with pytest.raises(ConversationNotFound):
        await chat.say("are you there?")
    with pytest.raises(ConversationNotFound):
        await delete(chat)


async def test_what_runs_is_cancelled_first_and_then_emptied(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id = await chat.begin([call("c1", "held", gate=SECRET)])
    waiting = await chat.say(SECRET)

    deleted = await delete(chat)
    assert deleted.cancelled == 2
    await is_emptied(chat)

    turns = await in_database(lambda: {turn.pk: turn for turn in Turn.objects.all()})
    assert {turns[pk].status for pk in (turn_id, waiting)} == {"cancelled"}
    assert {turns[pk].ended_by_name for pk in (turn_id, waiting)} == {"ada"}
    asked = await in_database(lambda: list(CancelRequest.objects.values_list("reason", flat=True)))
    assert asked == ["user", "user"]
    assert await in_database(lambda: rows_with(SECRET)) == []


async def test_what_a_tool_returns_after_the_deletion_is_not_kept(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id = await chat.begin([call("c1", "blocked", gate="late")])
    await delete(chat)
    await is_emptied(chat)
    fake_tools.open("late")

    def settled() -> ToolCall | None:
        return ToolCall.objects.filter(group=str(turn_id), late_kind="returned").first()

    late = await eventually(lambda: in_database(settled))
    assert late.late_text == ""


async def test_sub_agents_end_and_their_conversations_go_too(
    chat: ChatDriver, fake_tools: FakeTools
):
    use_scripts(
        chat,
        go=[[spawn("s1", SECRET)], [text("It works.")]],
        **{SECRET: [[call("c1", "held", gate="never")]]},
    )
    await chat.run()
    turn = await child(SECRET, status="running")
    deleted = await delete(chat)
    assert deleted.conversation_ids == [chat.id, turn.conversation_id]
    await is_emptied(chat)
    below = await in_database(lambda: Turn.objects.get(pk=turn.pk))
    assert below.status == "cancelled"
    assert await in_database(lambda: rows_with(SECRET)) == []
    with pytest.raises(ConversationNotFound):
        await selectors.snapshot(conversation_id=turn.conversation_id, user=chat.user)


@pytest.fixture
def family(ada: AbstractUser) -> tuple[RowFactory, Turn]:
    """A conversation whose turn is over, and the turn of a detached sub-agent that goes on."""
    above, below = RowFactory(ada), RowFactory(ada)
    Conversation.objects.filter(pk=below.id).update(parent=above.id)
    parent = above.turn()
    return above, below.turn("running", parent=parent, root=parent, is_detached=True)


def test_a_sub_agent_of_a_deleted_conversation_sets_nobody_to_work(
    ada: AbstractUser, family: tuple[RowFactory, Turn]
):
    above, turn = family
    hidden = deletions.hide(above.id, ada, CancelSource.API)
    origin = Origin(turn_id=turn.pk, epoch=turn.epoch, tool_id="s1", time_left=None)
    with pytest.raises(ChildRefused, match="being ended"):
        children.start(origin, agent="", message="dig", is_detached=True)
    assert set(Conversation.objects.values_list("pk", flat=True)) == {*hidden.conversation_ids}


async def test_what_began_below_a_deleted_conversation_is_deleted_with_it(
    ada: AbstractUser, family: tuple[RowFactory, Turn]
):
    above, turn = family

    def leave_behind() -> RowFactory:
        Turn.objects.filter(pk=turn.pk).update(status="cancelled")
        deletions.hide(above.id, ada, CancelSource.API)
        late = RowFactory(ada)
        Conversation.objects.filter(pk=late.id).update(parent=turn.conversation_id)
        late.turn()
        return late

    late = await in_database(leave_behind)
    await deletions.finish(notify_owner=runtime.notify_owner)
    for place in (above, late):
        with pytest.raises(ConversationNotFound):
            await selectors.snapshot(conversation_id=place.id, user=ada)


async def test_others_have_the_database_while_a_long_conversation_is_emptied(
    ada: AbstractUser, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(retention, "PIECE", 10)

    def plant() -> None:
        factory = RowFactory(ada)
        turn = factory.turn()
        at = timezone.now()
        rows = (
            Event(conversation=turn.conversation, turn=turn, seq=seq, type="error", at=at)
            for seq in range(1, 301)
        )
        Event.objects.bulk_create(rows)
        deletions.hide(factory.id, ada, CancelSource.API)

    await in_database(plant)
    emptying = asyncio.create_task(deletions.finish(notify_owner=runtime.notify_owner))
    seen = set()
    while not emptying.done():
        seen.add(await in_database(Event.objects.count))
    assert await in_database(Event.objects.count) == 0
    assert len(seen) > 10  # each look waits behind no more than a piece


async def test_what_runs_for_a_user_who_is_deleted_ends_with_the_user(
    chat: ChatDriver, fake_tools: FakeTools, settings: Any, caplog: pytest.LogCaptureFixture
):
    """Rows go first here, and nothing of it is written any more: nothing would be noticed."""
    settings.TURNS_SWEEP_INTERVAL = 0.05
    settings.GOVERNANCE_APPROVAL = {}
    use_scripts(
        chat,
        go=[
            [spawn("s1", SECRET), call("c1", "held", gate="never"), call("c2", "asked")],
            [text("It works.")],
        ],
        **{SECRET: [[call("c3", "held", gate="never")]]},
    )
    turn_id = await chat.say()
    await chat.running(turn_id, "c1")
    await chat.asked(turn_id, "c2")
    below = await child(SECRET, status="running")
    await chat.running(below.pk, "c3")
    (held, other) = await bodies("held", 2)

    await in_database(chat.user.delete)
    await eventually(lambda: held.done() and other.done())

    async def is_idle() -> bool:
        return runtime.live_count() == 0

    await eventually(is_idle)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_what_a_tool_writes_after_its_user_was_deleted_goes_when_it_ends(
    chat: ChatDriver, scribbling: None, settings: Any, tmp_path: Path
):
    settings.TURNS_SWEEP_INTERVAL = 0.05
    use_scripts(chat, go=[[spawn("s1", "dig")], [text("It digs.")]], dig=[[call("c1", "scribble")]])
    await chat.run()
    below = await child("dig", status="running")
    await chat.running(below.pk, "c1")
    await in_database(chat.user.delete)

    async def is_idle() -> bool:
        return runtime.live_count() == 0

    await eventually(is_idle)
    await eventually(lambda: not any(tmp_path.iterdir()))


@pytest.fixture
def scribbling() -> Iterator[None]:
    """A tool that leaves a file in its workspace when it is cancelled."""

    async def scribble(context: ToolContext) -> None:
        """Wait, and write."""
        try:
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_soon(leave_note, context.workspace)

    registry.register(make_tool(scribble))
    yield
    registry.unregister("scribble")


def leave_note(workspace: Path) -> None:
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "note.txt").write_text(SECRET)


async def test_the_admin_deletes_no_user_who_has_conversations(chat: ChatDriver):
    def try_it() -> tuple[int, bool]:
        user = get_user_model().objects
        admin = sign_in(user.create_superuser("root"))
        address = reverse("admin:auth_user_delete", args=[chat.user.pk])
        return admin.post(address, {"post": "yes"}).status_code, user.filter(
            username="ada"
        ).exists()

    assert await in_database(try_it) == (403, True)


async def test_what_was_kept_of_a_user_goes_with_the_user(chat: ChatDriver):
    chat.use_script([text(SECRET), call("c1", "quick", text=SECRET)], [text(SECRET)])
    await chat.run(SECRET)
    workspace = workspace_of(str(chat.id))
    assert workspace is not None
    (workspace / "note.txt").write_text(SECRET)
    assert await in_database(lambda: rows_with(SECRET))

    await in_database(chat.user.delete)

    assert await in_database(lambda: rows_with(SECRET)) == []
    assert not workspace.exists()


async def bodies(tool_name: str, count: int) -> list[asyncio.Task[Any]]:
    """Return the tasks of so many bodies of a tool, once they run."""

    def found() -> list[asyncio.Task[Any]] | None:
        tasks = [
            task for task in asyncio.all_tasks() if task.get_name().startswith(f"tool {tool_name} ")
        ]
        return tasks if len(tasks) == count else None

    return await eventually(found)


async def test_only_its_owner_deletes_a_conversation_and_not_one_of_a_sub_agent(
    chat: ChatDriver, eve: AbstractUser, operator: AbstractUser
):
    use_scripts(chat, go=[[spawn("s1", "dig")], [text("ok")]], dig=[[text("gold")]])
    await chat.run()
    for user in (eve, operator):
        with pytest.raises(ConversationNotFound):
            await delete(chat, user)
    place = (await child("dig")).conversation_id
    with pytest.raises(MessageRejected):
        await services.delete_conversation(
            conversation_id=place, user=chat.user, source=CancelSource.API
        )
    assert len(await selectors.list_conversations(user=chat.user)) == 1


async def test_a_decision_stays_without_what_it_was_about(chat: ChatDriver, settings: Any):
    settings.GOVERNANCE_APPROVAL = {"quick": "always"}
    chat.use_script([call("c1", "quick", text=SECRET)], [text("no")])
    turn_id = await chat.say()
    await chat.asked(turn_id, "c1")
    await chat.decide(turn_id, "c1", decision="deny", reason=SECRET)
    await chat.ended(turn_id)
    await delete(chat)
    await is_emptied(chat)
    decision = await in_database(Approval.objects.get)
    assert (decision.decision, decision.by_name) == ("denied", "ada")
    assert (decision.input, decision.reason) == ({}, "")
    assert await in_database(lambda: rows_with(SECRET)) == []


async def test_a_link_in_place_of_the_workspace_takes_nothing_else_along(
    chat: ChatDriver, tmp_path: Path
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    workspace = workspace_of(str(chat.id))
    assert workspace is not None
    workspace.symlink_to(outside)
    await delete(chat)
    await is_emptied(chat)
    assert not workspace.is_symlink()
    assert (outside / "kept.txt").read_text() == "kept"
