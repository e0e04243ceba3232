"""Images that calls show: kept like people's files, seen by whoever may see the conversation and by models."""

import base64
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.utils import timezone, translation

from governance import ToolContext, make_tool, registry
from governance.core.images import MOST_IMAGES
from governance.db import run_in_db_thread
from governance.models import McpServer, ToolCall
from governance.runtime import prepare_tools, workspace_of
from tests import files_to_attach as files
from tests.governance.mcp.support import HERE
from tests.support import PATIENCE, eventually
from turns import selectors, services
from turns.core.messages import AttachmentBlock, ToolResultBlock
from turns.exceptions import AttachmentNotFound
from turns.models import Attachment, Conversation, Turn
from turns.storage import retention
from turns.testing import call, text
from webchat.exports import as_markdown

pytestmark = pytest.mark.django_db(transaction=True)

TOOL = "unruly_paint"
SHOWN = "Here you are.\n[image image.png: image/png, 40 × 30 pixels]"


@pytest.fixture(autouse=True)
def storage(settings: Any, tmp_path: Path) -> Path:
    return files.keep_files(settings, tmp_path)


@pytest.fixture
async def server():
    """A server, in a process of its own, that shows what it is given."""
    await run_in_db_thread(McpServer.objects.create)(
        name="unruly", command=f"{sys.executable} {HERE / 'unruly_server.py'}"
    )
    await prepare_tools()
    await eventually(lambda: TOOL in registry, timeout=PATIENCE)


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def stored(storage: Path) -> list[Path]:
    return [path for path in storage.rglob("*") if path.is_file()]


async def painted(chat, content: bytes = b"", **more: Any):
    """Let a turn call the tool once; return the call's row and what the chat model was asked last."""
    given = {"data": encoded(content or files.image()), **more}
    model = chat.use_script([call("c1", TOOL, **given)], [text("I see.")])
    model.media = {"image"}
    turn = await chat.run("paint")
    assert turn.status == "completed"
    return (await chat.calls(turn.pk))["c1"], model.requests[-1].messages[-1]


async def test_image_of_a_server_is_kept_told_and_given_to_a_model_that_sees(chat, server, storage):
    row, asked = await painted(chat)
    assert row.result == SHOWN
    event = await chat.sink.until("tool_result", tool_id="c1")
    [image] = event["images"]
    assert image == {
        "type": "image",
        "attachment_id": image["attachment_id"],
        "name": "image.png",
        "media_type": "image/png",
        "size": stored(storage)[0].stat().st_size,
        "width": 40,
        "height": 30,
        "tool_use_id": "c1",
    }
    result, told, picture = asked.content
    assert isinstance(result, ToolResultBlock)
    assert isinstance(picture, AttachmentBlock)
    assert picture.content == stored(storage)[0].read_bytes()
    place = f"attachments/{image['attachment_id'][:8]}-image.png"
    assert told.text.startswith("[IMAGE OF A TOOL] Call c1: image.png")
    assert (workspace_of(str(chat.id)) / place).read_bytes() == picture.content
    snapshot = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    assert [each["images"] for each in snapshot["calls"]] == [[image]]


async def test_image_stays_in_the_history_and_goes_with_the_conversation(chat, server, storage):
    await painted(chat)
    model = chat.use_script([text("Still there.")])
    model.media = {"image"}
    await chat.run("And now?")
    [first] = [message for message in model.requests[-1].messages if message.tool_results]
    assert [block.content is not None for block in first.attachments] == [True]
    history = await selectors.history(conversation_id=chat.id, user=chat.user)
    [_result, block] = history["messages"][2]["content"]
    assert (block["type"], block["tool_use_id"]) == ("image", "c1")
    exported = await selectors.export(conversation_id=chat.id, user=chat.user)
    assert "*File: image.png (image/png, " in as_markdown(exported)
    await services.delete_conversation(conversation_id=chat.id, user=chat.user, source="api")
    await eventually(lambda: not stored(storage))
    emptied = Conversation.objects.filter(pk=chat.id, emptied_at__isnull=False)
    await eventually(run_in_db_thread(emptied.exists))
    assert (await ToolCall.objects.aget()).images == []


async def test_model_that_does_not_see_is_told_so(chat, server):
    model = chat.use_script([call("c1", TOOL, data=encoded(files.image()))], [text("Well.")])
    await chat.run("paint")
    _result, told = model.requests[-1].messages[-1].content
    assert "image.png (image/png, 40 × 30 pixels). You cannot see it." in told.text


async def test_only_who_may_see_the_conversation_may_see_the_image(chat, server):
    row, _asked = await painted(chat)
    image = UUID(row.images[0]["id"])
    file = await selectors.attached_file(attachment_id=image, user=chat.user)
    assert file.content.startswith(b"\x89PNG")
    stranger = await run_in_db_thread(User.objects.create_user)("stranger")
    with pytest.raises(AttachmentNotFound):
        await selectors.attached_file(attachment_id=image, user=stranger)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (files.SVG, "It is none of these: PNG, JPEG, GIF, WEBP."),
        (files.HTML, "It is none of these: PNG, JPEG, GIF, WEBP."),
        (files.pdf(), "It is none of these: PNG, JPEG, GIF, WEBP."),
        (files.image()[:60], "The file cannot be read"),
        (files.bomb(), "The image is too large. The limit is 50 million pixels."),
    ],
    ids=["svg", "html", "pdf", "cut off", "bomb"],
)
async def test_what_is_no_image_is_refused_in_a_sentence(chat, server, storage, content, sentence):
    with translation.override("de"):  # the chat model reads it: in English
        row, asked = await painted(chat, content)
    assert row.status == "succeeded"
    assert f"bytes, not shown: {sentence}" in row.result
    assert (row.images, stored(storage), len(asked.content)) == ([], [], 1)
    assert await run_in_db_thread(Attachment.objects.count)() == 0


async def test_type_is_told_by_the_content_and_not_by_the_server(chat, server):
    row, _asked = await painted(chat, files.located_photo(), mime="text/html")
    assert row.images[0]["media_type"] == "image/jpeg"


async def test_large_image_is_refused(chat, server, settings):
    settings.TURNS_ATTACHMENT_MAX_BYTES = 20
    row, _asked = await painted(chat)
    assert "not shown: The file is too large" in row.result


async def test_image_counts_for_the_quota_of_the_owner(chat, server, settings):
    settings.TURNS_ATTACHMENT_QUOTA = 1
    row, _asked = await painted(chat)
    assert "not shown: Your files use all available space." in row.result


async def test_call_shows_so_many_images_at_most(chat, server):
    row, _asked = await painted(chat, times=MOST_IMAGES + 1)
    assert len(row.images) == MOST_IMAGES
    assert row.result.endswith(f"not shown: A call shows {MOST_IMAGES} images at most.]")


async def test_failed_call_shows_its_image(chat, server):
    row, asked = await painted(chat, wrong=True)
    assert (row.status, row.result) == ("failed", SHOWN)
    assert len(asked.attachments) == 1


async def test_nothing_is_shown_where_nothing_is_kept(chat, server, settings):
    settings.TURNS_ATTACHMENT_STORAGE = ""
    row, _asked = await painted(chat)
    assert row.result.endswith("bytes, not shown]")


async def test_tool_of_a_project_shows_an_image(chat):
    async def draw(context: ToolContext) -> str:
        """Draw."""
        return await context.show_image(files.image("JPEG"), name="drawing")

    registry.register(make_tool(draw))
    try:
        chat.use_script([call("c1", "draw")], [text("Nice.")])
        turn = await chat.run("draw")
    finally:
        registry.unregister("draw")
    [image] = (await chat.calls(turn.pk))["c1"].images
    assert image["name"] == "drawing.jpg"


async def test_plain_tool_shows_an_image_to_people_and_to_a_model_that_sees(chat, storage):
    def draw(context: ToolContext) -> str:
        """Draw."""
        return context.show_image_blocking(files.image(), name="drawing")

    registry.register(make_tool(draw))
    try:
        model = chat.use_script([call("c1", "draw")], [text("Nice.")])
        model.media = {"image"}
        turn = await chat.run("draw")
    finally:
        registry.unregister("draw")
    row = (await chat.calls(turn.pk))["c1"]
    assert row.result == "[image drawing.png: image/png, 40 × 30 pixels]"
    event = await chat.sink.until("tool_result", tool_id="c1")
    assert [image["name"] for image in event["images"]] == ["drawing.png"]
    [picture] = model.requests[-1].messages[-1].attachments
    assert picture.content == stored(storage)[0].read_bytes()


async def test_pruned_turn_takes_its_images_along(chat, server, storage):
    await painted(chat)
    await Turn.objects.aupdate(ended_at=timezone.now() - timedelta(days=100))
    pruned = await run_in_db_thread(retention.prune)(timedelta(days=90))
    assert (pruned.turns, pruned.attachments) == (1, 1)
    assert stored(storage) == []
