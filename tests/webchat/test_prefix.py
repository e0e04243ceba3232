"""A site below a path: where its socket is, for proxies that pass the path on and for those that cut it off."""

from typing import Any

import httpx
import pytest
from channels.testing import WebsocketCommunicator
from django.core.asgi import get_asgi_application
from django.test import AsyncClient, override_settings

from tests.support import LONG_PATIENCE
from tests.webchat.sockets import application
from turns import services
from webchat.protocol.server_frames import CloseCode


async def code_of(path: str, **scope: Any) -> int | None:
    """Open a socket as nobody; return the code with which it is closed."""
    headers = [(b"host", b"localhost:8000"), (b"origin", b"http://localhost:8000")]
    wire = WebsocketCommunicator(application, path, headers=headers)
    wire.scope.update(scope)  # type: ignore[typeddict-item]
    await wire.connect(timeout=LONG_PATIENCE)
    closed = await wire.receive_output(timeout=LONG_PATIENCE)
    code: int | None = closed.get("code")
    return code


@pytest.mark.parametrize("path", ["/app/ws/conversations/1/", "/ws/conversations/1/"])
@pytest.mark.parametrize("how", ["root_path", "FORCE_SCRIPT_NAME"])
async def test_a_socket_is_found_with_the_prefix_and_without(
    transactional_db: None, path: str, how: str
) -> None:
    if how == "root_path":
        assert await code_of(path, root_path="/app") == CloseCode.SIGNED_OUT
    else:
        with override_settings(FORCE_SCRIPT_NAME="/app"):
            assert await code_of(path) == CloseCode.SIGNED_OUT


async def test_what_only_begins_like_the_prefix_is_not_taken_for_it(transactional_db: None) -> None:
    path = "/apple/ws/conversations/1/"
    assert await code_of(path, root_path="/app") == CloseCode.NO_SUCH_CONVERSATION


async def test_the_page_names_the_socket_below_the_prefix(
    user_client: AsyncClient, conversation: services.ConversationSummary
) -> None:
    cookies = {"sessionid": user_client.cookies["sessionid"].value}
    for root_path in ("", "/app"):
        site = httpx.ASGITransport(app=get_asgi_application(), root_path=root_path)
        async with httpx.AsyncClient(
            transport=site, base_url=f"http://localhost{root_path}", cookies=cookies
        ) as browser:
            page = await browser.get(f"/c/{conversation.id}/")
        assert f'data-socket-path="{root_path}/ws/conversations/00000000-' in page.text
        assert f'action="{root_path}/logout/"' in page.text
