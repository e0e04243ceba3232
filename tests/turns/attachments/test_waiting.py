"""Files that take seconds to open keep their own owner waiting, and go with whoever waited for them."""

import asyncio
import shutil
import threading
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from governance import Cancellation, CancellationToken, CancelReason
from tests import files_to_attach as files
from tests.support import PATIENCE, eventually, eventually_sync
from tests.turns.support import ChatDriver, in_database
from turns import services
from turns.attachments import file_parsing, rows
from turns.attachments.threads import ParsingQueue, uploads
from turns.exceptions import AttachmentRejected
from turns.models import Attachment


@pytest.fixture(autouse=True)
def storage(settings: Any, tmp_path: Path) -> Path:
    return files.keep_files(settings, tmp_path)


def attach(user: Any, content: bytes) -> "asyncio.Task[Any]":
    work = services.add_attachment(user=user, name="file", source=BytesIO(content))
    return asyncio.create_task(work)


@pytest.fixture(autouse=True)
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tell the workers of this test from those of others by their path."""
    program = tmp_path / "file_worker.py"
    shutil.copy(file_parsing._WORKER, program)
    monkeypatch.setattr(file_parsing, "_WORKER", program)
    return program


def count_processes(worker: Path) -> int:
    """Count the processes that open files, their sandboxes included."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(entry.read_bytes())
        except OSError:
            continue
    return sum(str(worker).encode() in line for line in lines)


@pytest.mark.django_db(transaction=True)
async def test_files_of_one_person_keep_no_other_waiting_and_go_with_their_client(
    chat: ChatDriver, operator: Any, worker: Path
):
    slow = [attach(chat.user, files.slow_pdf()) for _ in range(4)]
    await eventually(lambda: uploads.count(chat.user.pk) == 4 and count_processes(worker))
    assert (await asyncio.wait_for(attach(operator, b"only a text"), PATIENCE))["type"]
    assert (await asyncio.wait_for(attach(operator, files.image()), PATIENCE))["type"] == "image"
    assert (await asyncio.wait_for(attach(chat.user, b"a text of my own"), PATIENCE))["type"]
    assert uploads.count(chat.user.pk) == 4  # none of them is through
    for upload in slow:
        upload.cancel()
    await asyncio.wait(slow)
    await eventually(lambda: uploads.count(chat.user.pk) == count_processes(worker) == 0)
    assert await in_database(Attachment.objects.filter(owner=chat.user.pk).count) == 1


@pytest.mark.parametrize("pause", [number / 1_000 for number in range(0, 40, 2)])
def test_a_cancel_at_any_moment_of_its_start_leaves_nothing_of_a_worker(worker: Path, pause: float):
    token = CancellationToken()
    begun = threading.Timer(pause, token.cancel, [Cancellation(reason=CancelReason.PARENT)])
    begun.start()
    file_parsing.read_file(BytesIO(files.slow_pdf()), token=token)
    begun.join()
    eventually_sync(lambda: count_processes(worker) == 0)


@pytest.mark.django_db(transaction=True)
async def test_what_has_no_room_is_refused_before_it_is_read(
    chat: ChatDriver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rows, "MOST_UNCLAIMED", 1)
    slow = attach(chat.user, files.slow_pdf())
    await eventually(lambda: uploads.count(chat.user.pk))

    class Unread:
        def read(self, _size: int, /) -> bytes:
            raise AssertionError("it was read")

    with pytest.raises(AttachmentRejected, match="too many unsent files"):
        await services.add_attachment(user=chat.user, name="file", source=Unread())
    slow.cancel()
    await eventually(lambda: uploads.count(chat.user.pk) == 0)


async def test_owners_take_turns():
    queue = ParsingQueue(places=1, name="test")
    opening, order = asyncio.Event(), []
    loop = asyncio.get_running_loop()
    first = asyncio.create_task(
        queue.run("ada", lambda _: asyncio.run_coroutine_threadsafe(opening.wait(), loop).result())
    )
    await eventually(lambda: queue.count("ada") == 1)
    later = [
        asyncio.create_task(queue.run(owner, lambda _, owner=owner: order.append(owner)))
        for owner in ("ada", "ada", "bob", "cid")
    ]
    await eventually(lambda: queue.count("cid") == 1)
    opening.set()
    await asyncio.gather(first, *later)
    assert order == ["bob", "cid", "ada", "ada"] or order == ["ada", "bob", "cid", "ada"]
    await eventually(lambda: not any(map(queue.count, ("ada", "bob", "cid"))))
