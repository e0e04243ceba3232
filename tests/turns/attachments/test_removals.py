"""Removing files: all of a deleted conversation go, and one that the storage keeps holds up no others."""

from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.files.storage import storages

from governance import CancelSource
from tests import files_to_attach as files
from tests.support import eventually
from tests.turns.row_factory import RowFactory
from tests.turns.support import ChatDriver, in_database
from turns import services
from turns.attachments import rows
from turns.endings import deletions
from turns.models import Attachment, Conversation, Turn
from turns.storage import retention
from turns.testing import text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def storage(settings: Any, tmp_path: Path) -> Path:
    return files.keep_files(settings, tmp_path)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The paths that the storage does not remove."""
    paths: set[str] = set()
    remove: Callable[[str], None] = storages["attachments"].delete

    def remove_unless_refused(path: str) -> None:
        if path in paths:
            raise PermissionError(path)
        remove(path)

    monkeypatch.setattr(storages["attachments"], "delete", remove_unless_refused)
    return paths


async def attach(chat: ChatDriver, *contents: bytes) -> list[UUID]:
    sent = []
    for content in contents:
        block = await services.add_attachment(user=chat.user, name="note", source=BytesIO(content))
        sent.append(UUID(block["attachment_id"]))
    return sent


async def send(chat: ChatDriver, conversation_id: UUID, *contents: bytes) -> list[str]:
    """Send files to a conversation; return where they are in the storage."""
    sent = await attach(chat, *contents)
    chat.use_script([text("Hello.")])
    received = await services.receive_message(
        conversation_id=conversation_id, user=chat.user, text="Hi", attachments=sent
    )
    await chat.sink.until_ended(received.turn_id)
    return [(await Attachment.objects.aget(pk=pk)).path for pk in sent]


async def delete(chat: ChatDriver, conversation_id: UUID) -> None:
    await services.delete_conversation(
        conversation_id=conversation_id, user=chat.user, source="api"
    )


async def is_emptied(conversation_id: UUID) -> None:
    emptied = Conversation.objects.filter(pk=conversation_id, emptied_at__isnull=False)
    await eventually(lambda: in_database(emptied.exists))


def stored(storage: Path) -> list[str]:
    return [str(path.relative_to(storage)) for path in storage.rglob("*") if path.is_file()]


async def test_more_files_than_are_removed_at_once_all_go(chat, storage, monkeypatch):
    monkeypatch.setattr(rows, "BATCH_SIZE", 2)
    await send(chat, chat.id, *(b"%d" % number for number in range(5)))
    await delete(chat, chat.id)
    await is_emptied(chat.id)
    assert stored(storage) == []
    assert await Attachment.objects.acount() == 0


async def test_a_file_that_stays_holds_up_no_other_conversation(
    chat, storage, refused, monkeypatch
):
    monkeypatch.setattr(rows, "BATCH_SIZE", 1)
    other = await services.create_conversation(user=chat.user)
    kept, *_ = await send(chat, chat.id, b"one", b"two", b"three")
    await send(chat, other.id, b"four")
    refused.add(kept)
    await delete(chat, chat.id)
    await delete(chat, other.id)
    await is_emptied(other.id)
    await eventually(lambda: stored(storage) == [kept])
    assert (await Conversation.objects.aget(pk=chat.id)).emptied_at is None

    refused.clear()
    await deletions.finish(notify_owner=lambda *_: None)
    await is_emptied(chat.id)
    assert stored(storage) == []


def deleted(owner: Any, number: int, *paths: str) -> UUID:
    """Plant a conversation with files, and delete it where no process empties it."""
    place = Conversation.objects.create(pk=UUID(int=number), owner=owner, title="planted")
    turn = RowFactory(conversation=place).turn()
    for path in paths:
        Attachment.objects.create(
            owner=owner, conversation=place, turn=turn, path=path, status=rows.STORED, size=1
        )
    deletions.hide(place.pk, owner, CancelSource.API)
    return place.pk


async def test_what_cannot_be_emptied_keeps_no_others_from_their_turn(ada, refused, monkeypatch):
    monkeypatch.setattr(deletions, "BATCH_SIZE", 1)
    refused.add("kept")
    stuck = await in_database(lambda: deleted(ada, 1, "kept"))
    other = await in_database(lambda: deleted(ada, 1 << 127))

    async def looked_and_found() -> bool:
        await deletions.finish(notify_owner=lambda *_: None)
        return await Conversation.objects.filter(pk=other, emptied_at__isnull=False).aexists()

    await eventually(looked_and_found)
    assert (await Conversation.objects.aget(pk=stuck)).emptied_at is None


async def test_what_is_empty_but_for_a_file_is_not_emptied_again(ada, refused):
    refused.add("kept")
    stuck = await in_database(lambda: deleted(ada, 1, "kept"))
    versions = []
    for _ in range(2):
        await deletions.finish(notify_owner=lambda *_: None)
        versions.append((await Conversation.objects.aget(pk=stuck)).history_version)
    assert versions == [1, 1]
    assert (await Turn.objects.aget()).user_message == ""


async def test_files_that_wait_for_a_storage_keep_no_conversation_open(chat, storage, settings):
    await send(chat, chat.id, b"one")
    settings.TURNS_ATTACHMENT_STORAGE = ""
    await delete(chat, chat.id)
    await is_emptied(chat.id)
    assert len(stored(storage)) == 1


async def test_files_that_stay_are_logged_together_and_prune_goes_on(
    chat, storage, refused, caplog
):
    await attach(chat, *(b"%d" % number for number in range(5)))
    await Attachment.objects.aupdate(status=rows.REMOVING)
    paths = [row.path async for row in Attachment.objects.order_by("pk")]
    refused.update(paths[:3])
    pruned = await in_database(lambda: retention.prune(timedelta(days=90)))
    assert pruned.attachments == 2
    assert sorted(stored(storage)) == sorted(paths[:3])
    [record] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert (record.files, record.exc_info[0]) == (3, PermissionError)
