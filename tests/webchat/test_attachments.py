"""Files by the HTTP API: who may attach, see and remove which, and what a browser may do with them."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import Permission, User
from django.core.asgi import get_asgi_application
from django.core.files.storage import storages
from django.test import AsyncClient
from django.utils import timezone

from governance.db import run_in_db_thread
from tests import files_to_attach as files
from tests.support import PATIENCE, eventually
from turns.attachments import file_storage, rows
from turns.attachments.threads import uploads
from turns.models import Attachment, Conversation
from turns.storage import retention
from webchat.api import api

Json = dict[str, Any]
pytestmark = pytest.mark.usefixtures("site")
BARE = "application/octet-stream"


@pytest.fixture(autouse=True)
def storage(settings: Any, tmp_path: Any) -> Any:
    return files.keep_files(settings, tmp_path)


def stored(storage: Any) -> list[str]:
    return [path.name for path in storage.rglob("*") if path.is_file()]


async def attach(
    client: AsyncClient, content: bytes, name: str = "file", content_type: str = BARE
) -> tuple[int, Json]:
    answer = await client.post(
        f"/api/attachments?name={name}", data=content, content_type=content_type
    )
    return answer.status_code, answer.json()


@pytest.fixture
async def strange_client(site: None, stranger: User) -> AsyncClient:
    client = AsyncClient()
    await client.aforce_login(stranger)
    return client


async def test_image_is_stored_under_a_random_name_and_shown(user_client, storage):
    status, block = await attach(user_client, files.image(), "photo.png")
    assert status == 201
    assert (
        block.items() >= {"type": "image", "name": "photo.png", "width": 40, "height": 30}.items()
    )
    [name] = stored(storage)
    assert len(name) == 32
    assert "photo" not in name
    answer = await user_client.get(f"/api/attachments/{block['attachment_id']}")
    assert answer.status_code == 200
    assert answer.content.startswith(b"\x89PNG")
    assert answer["Content-Type"] == "image/png"
    assert answer["Content-Disposition"] == 'inline; filename="photo.png"'
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.parametrize(
    ("content", "name", "saved"),
    [
        (files.SVG, "drawing.svg", "drawing.svg.txt"),
        (files.HTML, "page.html", "page.html.txt"),
        (files.pdf(), "report.pdf", "report.pdf"),
    ],
)
async def test_no_document_is_ever_shown_in_the_browser(user_client, content, name, saved):
    _status, block = await attach(user_client, content, name)
    answer = await user_client.get(f"/api/attachments/{block['attachment_id']}?download=false")
    assert answer["Content-Disposition"] == f'attachment; filename="{saved}"'
    assert answer["Content-Type"].split(";")[0] in {"text/plain", "application/pdf"}
    assert answer["X-Content-Type-Options"] == "nosniff"


async def test_forms_and_huge_bodies_are_refused_unread(user_client, settings):
    status, body = await attach(user_client, b"x", content_type="text/plain")
    assert (status, body["code"]) == (415, "unsupported_media_type")
    answer = await user_client.post("/api/attachments", {"file": "x"})
    assert answer.status_code == 415
    settings.TURNS_ATTACHMENT_MAX_BYTES = 100
    status, body = await attach(user_client, b"x" * 101)
    assert (status, body["code"]) == (413, "body_too_large")
    assert await Attachment.objects.acount() == 0


async def test_upload_needs_the_token_of_the_page(person):
    client = AsyncClient(enforce_csrf_checks=True)
    await client.aforce_login(person)
    status, body = await attach(client, b"hello")
    assert (status, body["code"]) == (403, "csrf_failed")
    assert (await attach(AsyncClient(), b"hello"))[0] == 401


async def test_files_of_others_look_like_no_files(user_client, strange_client):
    _status, block = await attach(user_client, b"mine")
    own = f"/api/attachments/{block['attachment_id']}"
    answers = [
        await strange_client.get(own),
        await strange_client.delete(own),
        await strange_client.get(f"/api/attachments/{uuid4()}"),
        await strange_client.get("/api/attachments/..%2f..%2fetc%2fpasswd"),
        await strange_client.get("/api/attachments/nonsense"),
    ]
    assert [answer.status_code for answer in answers] == [404] * 5
    assert {answer.json()["code"] for answer in answers} <= {"attachment_not_found", "not_found"}
    assert (await user_client.get(own)).content == b"mine"


async def test_staff_see_files_of_conversations_and_no_others(
    user_client, strange_client, stranger, conversation
):
    _status, block = await attach(user_client, b"mine")
    stranger.is_staff = True
    await stranger.asave()
    await stranger.user_permissions.aadd(await Permission.objects.aget(codename="view_all"))
    own = f"/api/attachments/{block['attachment_id']}"
    assert (await strange_client.get(own)).status_code == 404
    await Attachment.objects.aupdate(conversation=conversation.id)
    assert (await strange_client.get(own)).status_code == 200
    await Conversation.objects.aupdate(deleted_at=timezone.now())
    assert (await strange_client.get(own)).status_code == 404
    assert (await user_client.get(own)).status_code == 404


async def test_discarded_file_is_gone_with_its_row(user_client, storage):
    _status, block = await attach(user_client, b"mine")
    own = f"/api/attachments/{block['attachment_id']}"
    assert (await user_client.delete(own)).status_code == 204
    assert stored(storage) == []
    assert await Attachment.objects.acount() == 0
    assert (await user_client.delete(own)).status_code == 404


async def test_quota_holds_against_uploads_at_the_same_time(user_client, settings, storage):
    settings.TURNS_ATTACHMENT_QUOTA = 2_500
    answers = await asyncio.gather(*(attach(user_client, b"x" * 1_000) for _ in range(5)))
    assert sorted(status for status, _body in answers) == [201, 201, 422, 422, 422]
    assert len(stored(storage)) == 2


async def test_files_that_wait_are_limited(user_client, monkeypatch):
    monkeypatch.setattr(rows, "MOST_UNCLAIMED", 1)
    assert (await attach(user_client, b"one"))[0] == 201
    status, body = await attach(user_client, b"two")
    assert (status, body["code"]) == (422, "attachment_rejected")


async def test_nothing_is_attached_where_no_storage_is_set(user_client, settings):
    settings.TURNS_ATTACHMENT_STORAGE = ""
    status, body = await attach(user_client, b"hello")
    assert (status, body["code"]) == (422, "attachment_rejected")


async def test_file_that_is_not_stored_leaves_nothing_to_see(user_client, monkeypatch):
    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(file_storage, "write", fail)
    status, body = await attach(user_client, b"hello")
    assert (status, body["code"]) == (500, "server_error")
    row = await Attachment.objects.aget()
    assert row.status == rows.REMOVING
    await run_in_db_thread(rows.sweep)()
    assert await Attachment.objects.acount() == 0


@run_in_db_thread
def prune(**how: Any) -> retention.Pruned:
    return retention.prune(timedelta(days=90), **how)


async def test_prune_takes_what_no_message_has_claimed(user_client, storage, conversation):
    for number in range(3):
        await attach(user_client, b"%d" % number)
    old, claimed, _fresh = [row async for row in Attachment.objects.order_by("created_at")]
    past = timezone.now() - timedelta(days=2)
    await Attachment.objects.filter(pk__in=[old.pk, claimed.pk]).aupdate(created_at=past)
    await Attachment.objects.filter(pk=claimed.pk).aupdate(conversation=conversation.id)
    assert (await prune(is_dry_run=True)).attachments == 1
    assert len(stored(storage)) == 3
    assert (await prune()).attachments == 1
    assert len(stored(storage)) == 2
    assert not await Attachment.objects.filter(pk=old.pk).aexists()


async def test_file_that_cannot_be_removed_is_tried_again(user_client, storage, monkeypatch):
    await attach(user_client, b"hello")
    await Attachment.objects.aupdate(created_at=timezone.now() - timedelta(days=2))
    with monkeypatch.context() as broken:
        broken.setattr(storages["attachments"], "delete", _refuse)
        assert (await prune()).attachments == 0
    assert len(stored(storage)) == 1
    await prune()
    assert stored(storage) == []
    assert await Attachment.objects.acount() == 0


def _refuse(_path: str) -> None:
    raise OSError("the storage is away")


async def test_files_go_with_their_user(user_client, storage, person):
    await attach(user_client, b"hello")
    assert len(stored(storage)) == 1
    await person.adelete()
    assert stored(storage) == []


async def test_file_is_private_to_the_server(user_client):
    _status, block = await attach(user_client, b"hello")
    row = await Attachment.objects.aget(pk=UUID(block["attachment_id"]))
    assert row.path.startswith("attachments/")
    assert block.keys() == {"type", "attachment_id", "name", "media_type", "size"}


async def test_the_description_names_what_files_and_exports_come_as(user_client, conversation):
    described = api.get_openapi_schema()["paths"]

    def types_of(path: str) -> set[str]:
        return set(described[path]["get"]["responses"][200]["content"])

    for content in (files.image(), files.image("GIF"), files.image("WEBP"), files.pdf(), b"text"):
        _status, block = await attach(user_client, content)
        file = await user_client.get(f"/api/attachments/{block['attachment_id']}")
        kind = file["Content-Type"].partition(";")[0]
        assert kind in types_of("/api/attachments/{attachment_id}")
    for name in ("json", "markdown"):
        export = f"/api/conversations/{conversation.id}/export?format={name}"
        kind = (await user_client.get(export))["Content-Type"].partition(";")[0]
        assert kind in types_of("/api/conversations/{conversation_id}/export")


async def test_a_file_whose_client_has_left_is_read_no_further(user_client, person, storage):
    session, csrf = user_client.cookies["sessionid"].value, "c" * 32
    content = files.slow_pdf()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/attachments",
        "query_string": b"name=file",
        "headers": [
            (b"host", b"testserver"),
            (b"cookie", f"sessionid={session}; csrftoken={csrf}".encode()),
            (b"x-csrftoken", csrf.encode()),
            (b"content-type", BARE.encode()),
            (b"content-length", str(len(content)).encode()),
            (b"origin", b"http://testserver"),
        ],
    }
    upload = ApplicationCommunicator(get_asgi_application(), scope)
    await upload.send_input({"type": "http.request", "body": content})
    await eventually(lambda: uploads.count(person.pk) == 1)
    await upload.send_input({"type": "http.disconnect"})
    await upload.wait(timeout=PATIENCE)
    await eventually(lambda: uploads.count(person.pk) == 0)
    assert stored(storage) == []
