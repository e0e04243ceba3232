"""A server with two sockets, run by a test: `flood.py SERVER PORT ACKS`.

The first client never reads what is pushed to it, the second does. With ACKS the first announces acknowledgements.
Prints "started". Tells the second client, as JSON, the delays of its own frames, how much memory the process has gained
while 300 MB were pushed to the first, and how many of those frames were taken.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
django.setup()

from webchat.send_queue import SendQueue  # noqa: E402
from webchat.server import TurnServer  # noqa: E402

FRAME = "x" * 32_000
FRAMES = 9_600  # about 300 MB
PEER_FRAMES = 200


def memory() -> int:
    """Return how many bytes of memory the process holds."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


class Application:
    """Accepts a socket that never reads, then one that does; floods the first."""

    def __init__(self, *, acks: bool) -> None:
        self.acks = acks
        self.slow: SendQueue | None = None
        self.receives_slowly: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one socket until its client leaves."""
        if scope["type"] != "websocket":
            return
        await receive()
        await send({"type": "websocket.accept"})

        async def send_text(text: str) -> None:
            await send({"type": "websocket.send", "text": text})

        async def close(code: int) -> None:
            await send({"type": "websocket.close", "code": code})

        async def on_room() -> None:
            send_queue.put(json.dumps({"room": True}))

        send_queue = SendQueue(send=send_text, close=close)
        if self.slow is None and self.acks:
            send_queue.expect_acks()
        writing = asyncio.create_task(send_queue.run(on_room), name="send queue")
        if self.slow is None:
            self.slow = send_queue
        else:
            await self.flood(self.slow, peer=send_queue)
        while (message := await receive())["type"] != "websocket.disconnect":
            send_queue.note_client_frame()
            send_queue.acknowledge(json.loads(message["text"])["received"])
        writing.cancel()

    async def flood(self, slow: SendQueue, *, peer: SendQueue) -> None:
        """Push to both; tell the second what came of it."""
        offer = slow.offer if self.acks else slow.offer_text
        before, taken = memory(), 0
        for number in range(FRAMES):
            taken += offer(f"{taken} {FRAME}")
            if number % (FRAMES // PEER_FRAMES) == 0:
                peer.put(json.dumps({"sent_at": time.monotonic()}))
            await asyncio.sleep(0)
        await asyncio.sleep(0.2)
        peer.put(json.dumps({"gained": memory() - before, "taken": taken}))


def say(text: str) -> None:
    """Tell the test."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class FloodServer(TurnServer):
    """Runs no turns."""

    async def start_turns(self) -> None:
        say("started")


def main(server: str, port: int, application: Application) -> None:
    """Serve until the process is killed."""
    if server == "daphne":
        FloodServer(application, host="127.0.0.1", port=port, say=say).run()
        return
    say("started")
    if server == "uvicorn":
        import uvicorn

        uvicorn.run(application, port=port, lifespan="off", log_level="warning")
    else:
        from hypercorn.asyncio import serve
        from hypercorn.config import Config

        config = Config()
        config.bind = [f"127.0.0.1:{port}"]
        asyncio.run(serve(application, config))  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Application(acks=sys.argv[3] == "acks"))
