"""Refuses request bodies that are too large or too slow while they arrive.

Django would store a body on disk before it checks the size.
"""

import asyncio
import json
import math
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from turns.conf import app_settings as turn_settings

RECEIVE_TIMEOUT = 30.0  # maximum seconds between two parts of a body


class _Refused(Exception):
    """Raised to stop reading a body. `answer` is the body of the response."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(code)
        self.status = status
        self.answer = json.dumps({"error": sentence, "code": code}).encode()


class BodyLimit:
    """An ASGI middleware that limits request bodies.

    `limit` is in bytes; by default it is the larger of Django's limit for forms and the limit for attachments.
    """

    def __init__(self, inner: Any, *, limit: int | None = None) -> None:
        self.inner = inner
        self._limit = limit

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request on while its body stays within the size and time limits."""
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return
        limit = _largest_body() if self._limit is None else self._limit
        body = _Body(receive, limit=math.inf if limit is None else limit)
        try:
            body.check_size(_declared(scope))
            await self.inner(scope, body.receive, send)
        except _Refused as refused:
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(refused.answer)).encode()),
                (b"connection", b"close"),
            ]
            await send(
                {"type": "http.response.start", "status": refused.status, "headers": headers}
            )
            await send({"type": "http.response.body", "body": refused.answer})


class _Body:
    """The body of a request, with its limits of size and time."""

    def __init__(self, receive: Any, *, limit: float) -> None:
        self._receive = receive
        self._limit = limit
        self._size = 0
        self._is_whole = False

    async def receive(self) -> Any:
        """Return the next ASGI message.

        Raise `_Refused` if the body is too large or too slow. The disconnect has no time limit.
        """
        try:
            async with asyncio.timeout(None if self._is_whole else RECEIVE_TIMEOUT):
                message = await self._receive()
        except TimeoutError:
            sentence = _("The request body did not arrive in time.")
            raise _Refused(408, "body_timeout", sentence) from None
        self._size += len(message.get("body", b""))
        self.check_size(self._size)
        self._is_whole = not message.get("more_body", False)
        return message

    def check_size(self, size: int) -> None:
        """Raise `_Refused` if the size exceeds the limit. The sentence is in the site's language."""
        if size > self._limit:
            raise _Refused(413, "body_too_large", _("The request body is too large."))


def _largest_body() -> int | None:
    of_forms: int | None = getattr(settings, "DATA_UPLOAD_MAX_MEMORY_SIZE", None)
    if of_forms is None or not turn_settings.ATTACHMENT_STORAGE:
        return of_forms
    return max(of_forms, turn_settings.ATTACHMENT_MAX_BYTES)


def _declared(scope: Any) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0
