"""A storage that hangs: whoever wants a file of it waits, and nobody else does."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.files.storage import storages

from governance import CancelSource, ToolContext, make_tool, registry
from tests import files_to_attach as files
from tests.support import PATIENCE, eventually
from tests.turns.support import ChatDriver, in_database
from turns import selectors, services
from turns.exceptions import AttachmentNotFound
from turns.models import Attachment, Conversation
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 40  # more than any pool of threads here


class Gate:
    """A storage's method that waits until it is let go."""

    def __init__(self, method: Any) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.passed = threading.Event()
        self._method = method

    def __call__(self, *arguments: Any) -> Any:
        self.reached.set()
        self.opened.wait()
        try:
            return self._method(*arguments)
        finally:
            self.passed.set()


@pytest.fixture(autouse=True)
def storage(settings: Any, tmp_path: Path) -> Path:
    return files.keep_files(settings, tmp_path)


@pytest.fixture
def reading(storage: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    yield from held("open", monkeypatch)


@pytest.fixture
def writing(storage: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    yield from held("save", monkeypatch)


def held(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Let a method of the storage wait at a gate, which is open at the end."""
    gate = Gate(getattr(storages["attachments"], name))
    monkeypatch.setattr(storages["attachments"], name, gate)
    yield gate
    gate.opened.set()


def stored(storage: Path) -> list[Path]:
    return [path for path in storage.rglob("*") if path.is_file()]


async def attach(chat: ChatDriver) -> UUID:
    block = await services.add_attachment(
        user=chat.user, name="photo.png", source=BytesIO(files.image())
    )
    return UUID(block["attachment_id"])


@pytest.fixture
async def idle_thread() -> Any:
    """Leave one thread to whatever else blocks; return what waits for it."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=1))
    return lambda: asyncio.wait_for(asyncio.to_thread(lambda: True), PATIENCE)


async def test_files_that_hang_keep_no_other_thread_and_no_turn_waiting(chat, reading, idle_thread):
    image = await attach(chat)
    fetching = [
        asyncio.create_task(selectors.attached_file(attachment_id=image, user=chat.user))
        for _ in range(MANY)
    ]
    await eventually(reading.reached.is_set)
    assert await idle_thread()
    chat.use_script([text("Hello.")])
    assert (await chat.run()).status == "completed"
    reading.opened.set()
    fetched = await asyncio.gather(*fetching)
    assert {file.content[:4] for file in fetched} == {b"\x89PNG"}


async def test_turn_whose_file_hangs_keeps_no_other_thread_waiting(chat, reading, idle_thread):
    chat.use_script([text("Nice.")])
    turn_id = await chat.say("Look", attachments=[await attach(chat)])
    await eventually(reading.reached.is_set)
    assert await idle_thread()
    reading.opened.set()
    assert (await chat.ended(turn_id)).status == "completed"


async def test_turn_whose_file_hangs_ends_when_it_is_cancelled(chat, reading, caplog):
    model = chat.use_script([text("Nice.")])
    turn_id = await chat.say("Look", attachments=[await attach(chat)])
    await eventually(reading.reached.is_set)
    await chat.cancel(turn_id)
    assert (await chat.ended(turn_id)).status == "cancelled"
    assert model.requests == []
    assert not [record for record in caplog.records if record.name.startswith("turns.core.")]


async def test_image_whose_conversation_goes_while_it_is_written_goes_too(chat, writing, storage):
    async def draw(context: ToolContext) -> str:
        """Draw."""
        return await context.show_image(files.image())

    registry.register(make_tool(draw))
    try:
        chat.use_script([call("c1", "draw")])
        await chat.say("draw")
        await eventually(writing.reached.is_set)
        await services.delete_conversation(
            conversation_id=chat.id, user=chat.user, source=CancelSource.API
        )
        emptied = Conversation.objects.filter(pk=chat.id, emptied_at__isnull=False)
        await eventually(lambda: in_database(emptied.exists))
    finally:
        registry.unregister("draw")
    writing.opened.set()
    await eventually(writing.passed.is_set)
    await eventually(lambda: stored(storage) == [])
    assert await in_database(Attachment.objects.count) == 0


async def test_upload_whose_user_goes_while_it_is_written_is_refused(chat, writing, storage):
    uploading = asyncio.create_task(attach(chat))
    await eventually(writing.reached.is_set)
    await in_database(chat.user.delete)
    writing.opened.set()
    with pytest.raises(AttachmentNotFound):
        await uploading
    assert stored(storage) == []
