"""Refuses huge bodies before they are read whole: Django would first put them on the disk."""

import json
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from turns.conf import app_settings as turn_settings


class _TooLarge(Exception):
    """More has come than may."""


class BodyLimit:
    """Wraps the HTTP application. `limit` in bytes; None = as much as an upload of the chat, or a form, may have."""

    def __init__(self, inner: Any, *, limit: int | None = None) -> None:
        self.inner = inner
        self._limit = limit

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request on, as long as its body is small enough."""
        limit = _largest_body() if self._limit is None else self._limit
        if limit is None or scope["type"] != "http":
            await self.inner(scope, receive, send)
            return
        received = 0

        async def counted() -> Any:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise _TooLarge
            return message

        try:
            if _declared(scope) > limit:
                raise _TooLarge  # noqa: TRY301 - one way to refuse
            await self.inner(scope, counted, send)
        except _TooLarge:
            # In the site's language: nobody has asked for another one yet.
            refusal = {"error": _("The body is too large."), "code": "body_too_large"}
            body = json.dumps(refusal).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            await send({"type": "http.response.start", "status": 413, "headers": headers})
            await send({"type": "http.response.body", "body": body})


def _largest_body() -> int | None:
    of_forms: int | None = getattr(settings, "DATA_UPLOAD_MAX_MEMORY_SIZE", None)
    if of_forms is None or not turn_settings.ATTACHMENT_STORAGE:
        return of_forms
    return max(of_forms, turn_settings.ATTACHMENT_MAX_BYTES)


def _declared(scope: Any) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0
