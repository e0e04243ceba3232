"""Bodies that are too large are refused before they are read whole, by `serve` and by uvicorn alone."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.e2e.site import ROOT, Site
from tests.support import PATIENCE, eventually_sync
from webchat.body_limit import BodyLimit

LIMIT = 3_000_000


@pytest.fixture(params=["serve", "uvicorn"])
def port(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[int]:
    """Serve the site by one of the servers."""
    site = Site(tmp_path, TURNS_ATTACHMENT_MAX_BYTES=str(LIMIT))
    try:
        if request.param == "serve":
            site.start()
            yield site.port
        else:
            yield from _by_uvicorn(site)
    finally:
        site.leave()


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
            eventually_sync(site.answers, timeout=PATIENCE)
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
    refusal = {"error": "The body is too large.", "code": "body_too_large"}
    assert answer(port, f"Content-Length: {LIMIT + 1}") == (413, refusal)
    assert answer(port, f"Content-Length: {10**13}") == (413, refusal)
    size = LIMIT + 1
    begun = f"{size:x}\r\n".encode() + b"x" * size  # and the end of it never comes
    assert answer(port, "Transfer-Encoding: chunked", begun) == (413, refusal)
    status, body = answer(port, "Content-Length: 2\r\nConnection: close", b"hi")
    assert (status, body["code"]) == (401, "signed_out")


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
