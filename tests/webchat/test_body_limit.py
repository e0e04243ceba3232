"""Bodies that are too large or never end are refused: by uvicorn before they are read whole, by Daphne behind a proxy."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.e2e.site import ROOT, Site
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync
from webchat import body_limit
from webchat.body_limit import BodyLimit

LIMIT = 3_000_000


@pytest.fixture
def site(tmp_path: Any) -> Iterator[Site]:
    site = Site(tmp_path, TURNS_ATTACHMENT_MAX_BYTES=str(LIMIT))
    try:
        yield site
    finally:
        site.leave()


@pytest.fixture
def port(site: Site) -> Iterator[int]:
    """Serve the site by uvicorn."""
    yield from _by_uvicorn(site)


def _by_uvicorn(site: Site) -> Iterator[int]:
    site.carry_out("")
    environment = {
        "PATH": os.environ["PATH"],
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(site.var),
        "HTTPS": "false",
        "TURNS_ATTACHMENT_MAX_BYTES": str(LIMIT),
    }
    command = [sys.executable, "-m", "uvicorn", "config.asgi:application", "--port", str(site.port)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            eventually_sync(site.answers, timeout=LONG_PATIENCE)
            yield site.port
        finally:
            server.kill()


def answer(port: int, head: str, body: bytes = b"") -> tuple[int, Any]:
    """Send this much of a request, and read the answer to it."""
    lines = f"POST /api/attachments?name=x HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{head}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as wire:
        wire.sendall(lines.encode() + body)
        said = b""
        while piece := wire.recv(65_536):
            said += piece
    top, _blank, content = said.partition(b"\r\n\r\n")
    return int(top.split()[1]), json.loads(content)


def test_huge_body_is_refused_before_it_is_read_whole(port: int):
    refusal = {"error": "The request body is too large.", "code": "body_too_large"}
    assert answer(port, f"Content-Length: {LIMIT + 1}") == (413, refusal)
    assert answer(port, f"Content-Length: {10**13}") == (413, refusal)
    size = LIMIT + 1
    begun = f"{size:x}\r\n".encode() + b"x" * size  # and the end of it never comes
    assert answer(port, "Transfer-Encoding: chunked", begun) == (413, refusal)
    status, body = answer(port, "Content-Length: 2\r\nConnection: close", b"hi")
    assert (status, body["code"]) == (401, "signed_out")


def test_daphne_reads_a_huge_body_and_the_site_refuses_it(site: Site):
    site.start()
    size = LIMIT + 1
    head = f"Content-Length: {size}\r\nConnection: close"
    refusal = {"error": "The request body is too large.", "code": "body_too_large"}
    assert answer(site.port, head, b"x" * size) == (413, refusal)


async def test_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(body_limit, "RECEIVE_TIMEOUT", 0.05)

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass

    config = uvicorn.Config(BodyLimit(inner), lifespan="off", log_config=None)
    config.load()
    state = ServerState()

    def protocol() -> asyncio.Protocol:
        return config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            "POST /api/attachments?name=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
        )
        writer.write(f"{head}half".encode())
        async with asyncio.timeout(PATIENCE):
            response = await reader.read()
        writer.close()
    top, _blank, content = response.partition(b"\r\n\r\n")
    refusal = {"error": "The request body did not arrive in time.", "code": "body_timeout"}
    assert (int(top.split()[1]), json.loads(content)) == (408, refusal)
    assert b"connection: close" in top.lower()
    assert not state.connections


async def test_time_counts_between_two_parts_and_not_after_the_last(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(
        body_limit, "RECEIVE_TIMEOUT", 0.0
    )  # each part is there when it is asked for
    parts = [
        {"type": "http.request", "body": b"x", "more_body": number < 9} for number in range(10)
    ]
    sent: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(11):
            await send(await receive())

    async def receive() -> Any:
        if len(sent) == 10:
            await asyncio.sleep(0.01)  # as long as the client stays
            return {"type": "http.disconnect"}
        return parts[len(sent)]

    async def send(message: Any) -> None:
        sent.append(message)

    await BodyLimit(inner, limit=10)({"type": "http", "headers": []}, receive, send)
    assert sent == [*parts, {"type": "http.disconnect"}]


async def test_what_is_small_enough_passes_unchanged():
    sent: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send(await receive())

    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * 10, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = SimpleNamespace(type="http", headers=[(b"content-length", b"nonsense")]).__dict__
    await BodyLimit(inner, limit=10)(scope, receive, send)
    assert sent == [await receive()]
    await BodyLimit(inner, limit=9)(scope, receive, send)
    assert sent[1]["status"] == 413
