"""Finds the settings of an agent that a model ignores, by comparing the requests with and without each. No request
is sent.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import fields, replace
from typing import Any

from httpx2 import AsyncClient, ConnectError, MockTransport, Request, Response

from turns.chat_models.failures import ProviderFailure, Subject
from turns.chat_models.vendors.streams import Connection, MakeModel
from turns.core.chat_model import (
    AS_USUAL,
    OFF,
    ChatDelta,
    ChatRequest,
    ChatSettings,
    StreamLimits,
    ToolSpec,
)
from turns.core.messages import Message, TextBlock

_OURS = ("window",)  # settings that are not part of a request
_HELLO = Message(role="user", content=(TextBlock(text="Hello"),))
_TOOL = ToolSpec(name="tool", description="", input_schema={"type": "object"})


async def ignored_settings(make: MakeModel, settings: ChatSettings) -> list[str]:
    """Return the names of the settings that do not change the request."""
    usual = {each.name: getattr(AS_USUAL, each.name) for each in fields(settings)}
    # Each setting is compared with a value that certainly differs, because a retention time may equal the model's default.
    usual["cache_retention"] = "1h" if settings.cache_retention == OFF else OFF
    body = await _body(make, settings)
    return [
        name
        for name, value in usual.items()
        if name not in _OURS and getattr(settings, name) != getattr(AS_USUAL, name)
        if await _body(make, replace(settings, **{name: value})) == body
    ]


async def _body(make: MakeModel, settings: ChatSettings) -> bytes:
    bodies: list[bytes] = []

    def refuse(request: Request) -> Response:
        bodies.append(request.content)
        raise ConnectError("nothing is sent")

    request = ChatRequest(instructions="", messages=(_HELLO,), tools=(_TOOL,), settings=settings)
    async with AsyncClient(transport=MockTransport(refuse), timeout=None) as http_client:
        connection = Connection(
            make(http_client), http_client=http_client, subject=Subject(chat_model="")
        )
        stream: AsyncGenerator[ChatDelta, Any] = connection.stream(request, StreamLimits())
        with suppress(ProviderFailure):
            async with aclosing(stream) as deltas:
                async for _delta in deltas:
                    pass
    return bodies[-1] if bodies else b""
