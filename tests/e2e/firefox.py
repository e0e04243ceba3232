"""An installed Firefox, driven by WebDriver BiDi. Playwright asks for commands that an extended support release does not know."""

import asyncio
import itertools
import json
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.support import PATIENCE, eventually

_NAMES = ("firefox-esr", "firefox")
_ENTER = "\ue007"
_BROKEN = ("error", "assert")


def firefox_path() -> str | None:
    """Return the program of an installed Firefox, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@asynccontextmanager
async def started(profile: Path) -> AsyncIterator["Firefox"]:
    """Start Firefox with one tab; it has ended afterwards."""
    program = firefox_path()
    assert program, "install the package firefox-esr"
    process = await asyncio.create_subprocess_exec(
        *(program, "--headless", "--no-remote", "--profile", str(profile)),
        *("--remote-debugging-port", "0", "about:blank"),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    draining = None
    try:
        async with asyncio.timeout(PATIENCE):
            address = await _address(process)
        draining = asyncio.create_task(process.stderr.read())  # a full pipe would hold it up
        async with connect(
            f"{address}/session", max_size=None, open_timeout=PATIENCE, ping_interval=None
        ) as socket:
            firefox = Firefox(socket)
            await firefox.begin()
            yield firefox
    finally:
        process.terminate()
        await process.wait()
        if draining is not None:
            await draining


async def _address(process: asyncio.subprocess.Process) -> str:
    while line := (await process.stderr.readline()).decode():
        if found := re.search(r"WebDriver BiDi listening on (ws://\S+)", line):
            return found[1]
    raise AssertionError("Firefox ended before it could be driven.")


class Firefox:
    """One tab. `problems` are the errors that its console has shown."""

    def __init__(self, socket: ClientConnection) -> None:
        self.problems: list[str] = []
        self._socket = socket
        self._ids = itertools.count(1)
        self._tab = ""

    async def begin(self) -> None:
        """Open the tab."""
        await self._send("session.new", capabilities={})
        await self._send("session.subscribe", events=["log.entryAdded"])
        self._tab = (await self._send("browsingContext.create", type="tab"))["context"]

    async def open(self, address: str) -> None:
        """Go to an address, until its page is loaded."""
        await self._send(
            "browsingContext.navigate", context=self._tab, url=address, wait="complete"
        )

    async def click(self, selector: str) -> None:
        """Click with the mouse on what a selector finds, once it is there, in sight and not disabled."""
        await self.until(f"[...document.querySelectorAll({selector!r})].some((it) => "
                         "it.checkVisibility() && !it.disabled)")  # fmt: skip
        found = await self._send(
            "browsingContext.locateNodes",
            context=self._tab,
            locator={"type": "css", "value": selector},
        )
        origin = {"type": "element", "element": {"sharedId": found["nodes"][0]["sharedId"]}}
        await self._act(
            "pointer",
            [
                {"type": "pointerMove", "x": 0, "y": 0, "origin": origin},
                {"type": "pointerDown", "button": 0},
                {"type": "pointerUp", "button": 0},
            ],
        )

    async def type(self, selector: str, text: str, *, enter: bool = False) -> None:
        """Click on a field, write into it, and press Enter if that is wanted."""
        await self.click(selector)
        keys = [*text, _ENTER] if enter else [*text]
        ups = ("keyDown", "keyUp")
        await self._act("key", [{"type": each, "value": key} for key in keys for each in ups])

    async def until(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true on the page."""
        await eventually(lambda: self._is(condition))

    async def until_text(self, selector: str, text: str) -> None:
        """Wait until what a selector finds shows a text."""
        await self.until(
            f"[...document.querySelectorAll({selector!r})].some((it) => it.innerText.includes({text!r}))"
        )

    async def _is(self, condition: str) -> bool:
        answer = await self._send(
            "script.evaluate",
            expression=f"Boolean({condition})",
            target={"context": self._tab},
            awaitPromise=False,
        )
        return answer.get("result", {}).get("value") is True

    async def _act(self, kind: str, actions: list[dict[str, Any]]) -> None:
        source = {"type": kind, "id": kind, "actions": actions}
        await self._send("input.performActions", context=self._tab, actions=[source])

    async def _send(self, method: str, **params: Any) -> dict[str, Any]:
        wanted = next(self._ids)
        await self._socket.send(json.dumps({"id": wanted, "method": method, "params": params}))
        async with asyncio.timeout(PATIENCE):
            while True:
                frame = json.loads(await self._socket.recv())
                if frame.get("type") == "event":
                    self._note(frame["params"])
                elif frame["id"] == wanted:
                    assert frame["type"] == "success", frame
                    return frame["result"]

    def _note(self, entry: dict[str, Any]) -> None:
        if entry.get("level") in _BROKEN:
            self.problems.append(str(entry.get("text")))
