"""Users who are deleted in the middle of what they have asked for. They are told so, and no error comes of it."""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db.backends.utils import CursorWrapper
from django.http import HttpResponseBase
from django.test import AsyncClient

from tests.webchat.sockets import Closed, Socket
from turns import services

pytestmark = pytest.mark.usefixtures("site")


class Deletion:
    """Deletes a user before the statement with this number that is in no transaction, whichever thread says it."""

    def __init__(self, user: User, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_done = False
        self._user, self._left, self._lock = user, number, threading.Lock()
        execute = CursorWrapper._execute

        def deleting(cursor: CursorWrapper, *arguments: Any) -> Any:
            if self._is_now(cursor.db.in_atomic_block):
                self._user.delete()
            return execute(cursor, *arguments)

        monkeypatch.setattr(CursorWrapper, "_execute", deleting)

    def _is_now(self, is_in_transaction: bool) -> bool:
        with self._lock:
            if is_in_transaction or self.is_done:
                return False
            self._left -= 1
            self.is_done = self._left < 0
            return self.is_done


@dataclass(frozen=True, slots=True)
class Guest:
    """A user with a browser and a conversation."""

    user: User
    client: AsyncClient
    conversation_id: UUID

    @classmethod
    async def come(cls, number: int) -> "Guest":
        user = await User.objects.acreate_user(f"guest-{number}")
        client = AsyncClient()
        await client.aforce_login(user)
        conversation = await services.create_conversation(user=user)
        return cls(user, client, conversation.id)

    @contextmanager
    def deleted_before_statement(self, number: int) -> Iterator[Deletion]:
        with pytest.MonkeyPatch.context() as monkeypatch:
            yield Deletion(self.user, number, monkeypatch)

    async def ask(self, method: str, path: str, **body: str) -> HttpResponseBase:
        ask = getattr(self.client, method)
        path = path.format(id=self.conversation_id)
        if method == "get":
            return await ask(path)
        return await ask(path, body, content_type="application/json")


async def close_code_within_opening(socket: Socket) -> int:
    """Open the socket; return the code with which the server closes it before it has answered a ping, or 0."""
    try:
        await socket.open()
        await socket.ping()
    except Closed as closed:
        return closed.code
    return 0


async def test_a_user_who_goes_between_any_two_statements_of_the_opening_is_told_so(
    connect: Callable[..., Socket], caplog: pytest.LogCaptureFixture
):
    for number in itertools.count():
        guest = await Guest.come(number)
        session = guest.client.cookies["sessionid"].value
        socket = connect(session=session, conversation_id=guest.conversation_id)
        with guest.deleted_before_statement(number) as deletion:
            code = await close_code_within_opening(socket)
            if not deletion.is_done:
                break
            assert (code or await socket.close_code()) == 4401, number
    assert number > 5
    assert "could not be handled" not in caplog.text


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/c/{id}/",
        "/c/{id}/recent/",
        "/c/new/{id}/",
        "/c/new/7ea00000-0000-0000-0000-000000000000/",
    ],
)
async def test_a_user_who_goes_between_any_two_statements_of_a_page_is_sent_to_the_sign_in(
    path: str,
):
    codes = await codes_of_requests("get", path)
    assert 302 in codes
    assert codes <= {200, 302, 404}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("get", "/api/conversations", {}),
        ("post", "/api/conversations", {}),
        ("get", "/api/agents", {}),
        ("patch", "/api/conversations/{id}", {"title": "Tea"}),
        ("delete", "/api/conversations/{id}", {}),
        ("get", "/api/conversations/{id}/history", {}),
        ("get", "/api/conversations/{id}/messages", {}),
        ("get", "/api/conversations/{id}/export", {}),
        ("post", "/api/conversations/{id}/messages", {"text": "say Tea."}),
        ("get", "/api/turns/active", {}),
    ],
)
async def test_a_user_who_goes_between_any_two_statements_of_a_request_is_told_so(
    method: str, path: str, body: dict[str, str]
):
    codes = await codes_of_requests(method, path, **body)
    assert 401 in codes
    assert max(codes) < 500


async def codes_of_requests(method: str, path: str, **body: str) -> set[int]:
    """Ask as often as the answer takes statements, each time with a user who goes before another one of them."""
    codes = set()
    for number in itertools.count():
        guest = await Guest.come(number)
        with guest.deleted_before_statement(number) as deletion:
            answer = await guest.ask(method, path, **body)
        codes.add(answer.status_code)
        if not deletion.is_done:
            return codes
    raise AssertionError
