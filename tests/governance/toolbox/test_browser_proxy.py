"""The proxy of a browser page, without a browser: what a page may ask of it."""

import asyncio

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
