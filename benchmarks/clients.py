"""A user of a site, with tabs that show conversations: HTTP and WebSockets in one event loop."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.faults.site import Site

_PATIENCE = 120.0
Frame = dict[str, Any]


class Tab:
    """An open socket and the conversation that it shows. `frames` has the received frames, with the time of each in `_at`."""

    def __init__(self, user: "User", socket: ClientConnection, conversation: str) -> None:
        self.conversation = conversation
        self.frames: list[Frame] = []
        self._user = user
        self._socket = socket
        self._has_news = asyncio.Event()

    async def read(self) -> None:
        """Collect frames until the socket closes. Run it in a separate task, so that the times are exact."""
        try:
            async for text in self._socket:
                self.frames.append({**json.loads(text), "_at": time.monotonic()})
                self._has_news.set()
        except ConnectionClosed:
            return

    async def greet(self) -> None:
        """Send the hello and wait for the snapshot."""
        await self._socket.send(json.dumps({"type": "hello", "protocol": 1}))
        await self.until("snapshot")

    async def say(self, text: str) -> str:
        """Post a message and return the id of its turn."""
        return await self._user.say(self.conversation, text)

    async def cancel(self, turn_id: str) -> None:
        """Post the cancel of a turn."""
        await self._user.cancel(turn_id)

    async def until(self, kind: str, *, count: int = 1, **fields: str) -> Frame:
        """Wait for `count` frames of this type with these fields; return the last one."""
        expected = {"type": kind, **fields}
        position = 0
        async with asyncio.timeout(_PATIENCE):
            while True:
                while position < len(self.frames):
                    frame = self.frames[position]
                    position += 1
                    count -= expected.items() <= frame.items()
                    if not count:
                        return frame
                self._has_news.clear()
                await self._has_news.wait()


class User:
    """A signed-in client of a site's web process."""

    def __init__(self, site: Site, http: httpx.AsyncClient) -> None:
        self._site = site
        self._http = http

    async def converse(self) -> str:
        """Begin a conversation and return its id."""
        answer = await self._http.post("/api/conversations", json={})
        return str(answer.raise_for_status().json()["conversation_id"])

    async def say(self, conversation: str, text: str) -> str:
        """Post a message and return the id of its turn."""
        path = f"/api/conversations/{conversation}/messages"
        answer = await self._http.post(path, json={"text": text})
        return str(answer.raise_for_status().json()["turn_id"])

    async def cancel(self, turn_id: str) -> None:
        """Post the cancel of a turn."""
        answer = await self._http.post(f"/api/turns/{turn_id}/abort", json={})
        answer.raise_for_status()

    async def until_running(self, turn_id: str) -> None:
        """Wait until a call of this turn is running."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                answer = await self._http.get(f"/api/turns/{turn_id}")
                calls = answer.raise_for_status().json()["calls"]
                if any(call["status"] == "running" for call in calls):
                    return
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def tabs(self, *conversations: str) -> AsyncIterator[list[Tab]]:
        """Open a tab for each conversation."""
        base = self._site.url().replace("http", "ws", 1)
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as readers:
            tabs = []
            for conversation in conversations:
                socket = await stack.enter_async_context(
                    connect(
                        f"{base}/ws/conversations/{conversation}/",
                        additional_headers=_headers(self._site),
                        proxy=None,
                        max_size=None,
                        close_timeout=1,
                    )
                )
                tab = Tab(self, socket, conversation)
                readers.create_task(tab.read())
                await tab.greet()
                tabs.append(tab)
            yield tabs
            await stack.aclose()  # so that the readers end


@asynccontextmanager
async def user_of(site: Site) -> AsyncIterator[User]:
    """Sign in."""
    async with httpx.AsyncClient(
        base_url=site.url(),
        headers=_headers(site),
        trust_env=False,
        timeout=_PATIENCE,
        limits=httpx.Limits(keepalive_expiry=2),  # the server closes idle connections after five
    ) as http:
        yield User(site, http)


def _headers(site: Site) -> dict[str, str]:
    return {"Authorization": f"Bearer {site.tokens['ada']}"}
