"""A server with two sockets, run by a test. One client never reads what is pushed to it, the other does.

Prints as JSON how much memory the process has gained, and how many frames were taken. It also prints the longest delay
of the other client's frames in seconds.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import django
from django.conf import settings

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
django.setup()
settings.WEBCHAT_SEND_TIMEOUT = float(sys.argv[2])

from webchat.send_queue import SEND_NOW, SendQueue  # noqa: E402
from webchat.server import TurnServer  # noqa: E402

IS_AT_ONCE = sys.argv[3] == "at once"
FRAME = "x" * 32_000
FRAMES = 6_000  # about 190 MB
PEER_FRAMES = 200


def memory() -> int:
    """Return how many bytes of memory the process holds."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


class FloodServer(TurnServer):
    """Runs no turns."""

    async def start_turns(self) -> None:
        self._say("started")


class Application:
    """Accepts a socket that never reads, then one that does; floods the first."""

    def __init__(self) -> None:
        self.slow: SendQueue | None = None
        self.code = 0
        self.is_closed = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one socket."""
        await receive()
        await send({"type": "websocket.accept"})

        async def send_text(text: str) -> None:
            await send({"type": "websocket.send", "text": text})

        async def close(code: int) -> None:
            self.code = code
            self.is_closed.set()
            await send({"type": "websocket.close", "code": code})

        async def on_room() -> None:
            """Have nothing more."""

        send_now = scope["extensions"][SEND_NOW]["send"] if IS_AT_ONCE else None
        send_queue = SendQueue(send=send_text, close=close, send_now=send_now)
        writing = asyncio.create_task(send_queue.run(on_room), name="outbox")
        if self.slow is None:
            self.slow = send_queue
        else:
            await self.flood(self.slow, peer=send_queue)
        await writing

    async def flood(self, slow: SendQueue, *, peer: SendQueue) -> None:
        """Push to both; tell what came of it."""
        before, taken = memory(), 0
        for number in range(FRAMES):
            taken += slow.offer(f"{taken} {FRAME}")
            if number % (FRAMES // PEER_FRAMES) == 0:
                peer.put(json.dumps({"sent_at": time.monotonic()}))
            await asyncio.sleep(0)
        await asyncio.sleep(0.2)
        peer.put(json.dumps({"gained": memory() - before, "taken": taken}))
        await self.is_closed.wait()
        peer.put(json.dumps({"closed": self.code}))


def say(text: str) -> None:
    """Tell the test."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


FloodServer(Application(), host="127.0.0.1", port=int(sys.argv[1]), say=say).run()
