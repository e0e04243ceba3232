"""Many tabs at once in one thread: each looks at a conversation of its own and says things in it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import httpx
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.clock_model import moments
from tests.faults.site import Site

PATIENCE = 120.0


class Tab:
    """An open socket and the conversation that it shows."""

    def __init__(
        self, http: httpx.AsyncClient, socket: ClientConnection, conversation: str
    ) -> None:
        self.conversation = conversation
        self._http = http
        self._socket = socket

    async def greet(self) -> None:
        """Say hello and wait for the snapshot."""
        await self._socket.send(json.dumps({"type": "hello", "protocol": 1}))
        await self.until("snapshot")

    async def say(self, text: str) -> str:
        """Say something and return the id of the turn."""
        return await say(self._http, self.conversation, text)

    async def until(self, kind: str, **fields: Any) -> list[float]:
        """Read up to a frame; return how late each chunk came that was streamed before it, in seconds."""
        wanted = {"type": kind, **fields}
        delays: list[float] = []
        async with asyncio.timeout(PATIENCE):
            while True:
                frame = json.loads(await self._socket.recv())
                now = time.monotonic()
                if frame["type"] == "text_delta":
                    delays += [now - moment for moment in moments(frame["text"])]
                if wanted.items() <= frame.items():
                    return delays


@asynccontextmanager
async def client_of(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    """Open the HTTP client of a user."""
    headers = {"Authorization": f"Bearer {site.tokens['ada']}"}
    async with httpx.AsyncClient(
        base_url=site.url(), headers=headers, trust_env=False, timeout=PATIENCE
    ) as http:
        yield http


class Tabs:
    """So many tabs, open until the end of the block."""

    def __init__(self, site: Site, http: httpx.AsyncClient, count: int) -> None:
        self._site = site
        self._http = http
        self._count = count
        self._open = AsyncExitStack()
        self.all: list[Tab] = []

    async def __aenter__(self) -> Self:
        """Open them, one after the other."""
        headers = {"Authorization": f"Bearer {self._site.tokens['ada']}"}
        base = self._site.url().replace("http", "ws", 1)
        for _ in range(self._count):
            conversation = await converse(self._http)
            url = f"{base}/ws/conversations/{conversation}/"
            socket = await self._open.enter_async_context(
                connect(
                    url,
                    additional_headers=headers,
                    proxy=None,
                    max_size=None,
                    max_queue=None,
                    close_timeout=1,
                )
            )
            tab = Tab(self._http, socket, conversation)
            await tab.greet()
            self.all.append(tab)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close them."""
        await self._open.aclose()


async def converse(http: httpx.AsyncClient) -> str:
    """Begin a conversation and return its id."""
    answer = (await http.post("/api/conversations", json={})).raise_for_status()
    return str(answer.json()["conversation_id"])


async def say(http: httpx.AsyncClient, conversation: str, text: str) -> str:
    """Say something and return the id of the turn."""
    answer = await http.post(f"/api/conversations/{conversation}/messages", json={"text": text})
    return str(answer.raise_for_status().json()["turn_id"])
