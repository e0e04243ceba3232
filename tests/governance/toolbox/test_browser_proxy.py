"""The proxy of a browser page, without a browser: what a page may ask of it."""

import asyncio
import contextlib
import socket

import pytest

from governance.toolbox.browser_proxy import BrowserProxy
from tests.support import PATIENCE, eventually

GREETING = b"\x05\x01\x00"
PAGES = 20


def request(host):
    """A request to connect to the port 80 of a host."""
    return b"\x05\x01\x00\x03" + bytes((len(host),)) + host.encode() + (80).to_bytes(2, "big")


async def test_a_page_has_few_names_looked_up_at_once(harness):
    """The others wait, so that a page which asks for names without end takes no other call's turn."""
    released = asyncio.Event()
    asked = []

    async def look_up(host, _port):
        asked.append(host)
        await released.wait()
        raise OSError("no such name")

    harness.change(web_resolve=look_up, web_connect_timeout=PATIENCE)
    proxy = BrowserProxy(lambda: harness.settings)
    port = int((await proxy.open()).rpartition(":")[2])
    connections = []
    for number in range(PAGES):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        connections.append(writer)
        writer.write(GREETING + request(f"{number}.test"))
        await reader.readexactly(2)  # it goes on with the request at once
    assert len(asked) == 4
    released.set()
    await eventually(lambda: len(asked) == PAGES)
    for writer in connections:
        writer.close()
    await proxy.aclose()


@pytest.mark.parametrize("steps", range(7))
async def test_closing_closes_a_connection_at_each_of_its_first_steps(harness, steps):
    """Also one that was accepted but not served yet."""
    proxy = BrowserProxy(lambda: harness.settings)
    port = int((await proxy.open()).rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        client.sendall(GREETING)
        for _ in range(steps):
            await asyncio.sleep(0)
        await proxy.aclose()
        # A connection that was in the queue of the closed listener is reset.
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(client.recv, 100) in (b"", b"\x05\x00")
            assert await asyncio.to_thread(client.recv, 100) == b""
