"""Many tabs at once in one thread: each looks at a conversation of its own and says things in it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import httpx
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.clock_model import moments

PATIENCE = 120.0
Piece = tuple[float, float]  # when a chunk was said, and how long after that it came


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where a site is, and who comes."""

    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        """What says who it is."""
        return {"Authorization": f"Bearer {self.token}"}


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

    async def tell(self, text: str) -> None:
        """Say something by a frame of the socket."""
        frame = {"type": "message", "client_id": str(uuid4()), "text": text}
        await self._socket.send(json.dumps(frame))

    async def until(self, kind: str, **fields: Any) -> list[Piece]:
        """Read up to a frame; return the chunks that were streamed before it."""
        wanted = {"type": kind, **fields}
        pieces: list[Piece] = []
        async with asyncio.timeout(PATIENCE):
            while True:
                frame = json.loads(await self._socket.recv())
                now = time.monotonic()
                if frame["type"] == "text_delta":
                    pieces += [(moment, now - moment) for moment in moments(frame["text"])]
                if wanted.items() <= frame.items():
                    return pieces


@asynccontextmanager
async def client_of(door: Door) -> AsyncIterator[httpx.AsyncClient]:
    """Open the HTTP client of a user."""
    async with httpx.AsyncClient(
        base_url=door.url, headers=door.headers, trust_env=False, timeout=PATIENCE
    ) as http:
        yield http


class Tabs:
    """So many tabs, open until the end of the block."""

    def __init__(self, door: Door, http: httpx.AsyncClient, count: int) -> None:
        self._door = door
        self._http = http
        self._count = count
        self._open = AsyncExitStack()
        self.all: list[Tab] = []

    async def __aenter__(self) -> Self:
        """Open them, one after the other."""
        base = self._door.url.replace("http", "ws", 1)
        for _ in range(self._count):
            conversation = await converse(self._http)
            url = f"{base}/ws/conversations/{conversation}/"
            socket = await self._open.enter_async_context(
                connect(
                    url,
                    additional_headers=self._door.headers,
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
