"""A WebSocket client for the tests: the real ASGI application, without a network."""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import UUID

from channels.testing import WebsocketCommunicator

from config.asgi import application
from tests.support import PATIENCE
from tests.turns.support import until_begun

TIMEOUT = PATIENCE
Frame = dict[str, Any]


class Closed(Exception):
    """The server closed the socket with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Socket:
    """One socket; keeps every frame that it saw."""

    def __init__(
        self,
        *,
        conversation_id: UUID | str,
        session: str | None = None,
        token: str | None = None,
        origin: str | None = "http://localhost:8000",
        language: str = "",
        room: int = 0,
    ) -> None:
        headers = [(b"host", b"localhost:8000")]
        if session is not None:
            headers.append((b"cookie", f"sessionid={session}".encode()))
        if token is not None:
            headers.append((b"authorization", f"Bearer {token}".encode()))
        if origin is not None:
            headers.append((b"origin", origin.encode()))
        if language:
            headers.append((b"accept-language", language.encode()))
        path = f"/ws/conversations/{conversation_id}/"
        self.wire = WebsocketCommunicator(application, path, headers=headers)
        if room:  # so many frames it takes before it reads; then whoever sends has to wait
            self.wire._output_queue = asyncio.Queue(maxsize=room)
        self.seen: list[Frame] = []
        self._unread: deque[Frame] = deque()

    async def connect(self) -> bool:
        """Open the socket; return whether it was accepted."""
        accepted, _ = await self.wire.connect(timeout=TIMEOUT)
        return accepted

    async def open(self, *, after: int | None = None, html: bool = False) -> "Socket":
        """Open the socket and say hello; the welcome has been read, and what happens from now on comes as events."""
        assert await self.connect()
        wanted = {"after": after, "html": html or None}
        said = {name: value for name, value in wanted.items() if value is not None}
        await self.send(type="hello", protocol=1, **said)
        await self.read("welcome")
        await self._until_greeted()
        return self

    async def send(self, **frame: Any) -> None:
        """Send a frame."""
        await self.send_text(json.dumps(frame))

    async def send_text(self, text: str) -> None:
        """Send a text as it is."""
        await self.wire.send_to(text_data=text)

    async def next(self) -> Frame:
        """Return the next frame; raise `Closed` if the server closed instead."""
        frame = self._unread.popleft() if self._unread else await self._receive()
        self.seen.append(frame)
        return frame

    async def _until_greeted(self) -> None:
        """Wait until the server has read the log: what happens before it is told in the snapshot."""
        if self.wire._output_queue.maxsize:
            return  # the server would wait for whoever reads first
        await self.send(type="ping")
        while (frame := await self._receive())["type"] != "heartbeat":
            self._unread.append(frame)

    async def _receive(self) -> Frame:
        try:
            output = await self.wire.receive_output(timeout=TIMEOUT)
        except TimeoutError:
            seen = [(frame["type"], frame.get("seq")) for frame in self.seen]
            raise AssertionError(f"no frame within {TIMEOUT} s after {seen}") from None
        if output["type"] == "websocket.close":
            raise Closed(output.get("code", 1000))
        frame: Frame = json.loads(output["text"])
        return frame

    async def read(self, kind: str, when: Callable[[Frame], bool] = lambda _: True) -> Frame:
        """Read up to the first frame of a type (that fits). A call that is told as started has begun then."""
        async with asyncio.timeout(TIMEOUT):  # heartbeats come for ever
            while True:
                frame = await self.next()
                if frame["type"] == kind and when(frame):
                    break
        if kind == "tool_start":
            await until_begun(UUID(frame["turn_id"]), frame["tool_id"])
        return frame

    async def close_code(self) -> int:
        """Read until the server closes; return its code."""
        try:
            while True:
                await self.next()
        except Closed as closed:
            return closed.code

    async def close_code_after_connecting(self) -> int:
        """Open the socket, which must be accepted; return the code with which the server closes it."""
        assert await self.connect()
        return await self.close_code()

    async def ping(self) -> Frame:
        """Ask for a heartbeat: everything that was sent before it has been read then."""
        await self.send(type="ping")
        return await self.read("heartbeat")

    async def leave(self, code: int = 1000) -> None:
        """Close the socket from here."""
        if not self.wire.future or not self.wire.future.done():
            await self.wire.disconnect(code=code, timeout=TIMEOUT)

    @property
    def events(self) -> list[Frame]:
        """The numbered events among the frames seen."""
        return [frame for frame in self.seen if "seq" in frame and frame["type"] != "snapshot"]

    @property
    def seqs(self) -> list[int]:
        """The numbers of the events seen, in the order in which they came."""
        return [event["seq"] for event in self.events]
