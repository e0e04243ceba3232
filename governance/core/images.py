"""Images that calls show beside their results. The host of a call keeps them, and the result says what became of each."""

import asyncio
import concurrent.futures
from asyncio.events import _get_running_loop
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from governance.core.cancellation import CancellationToken
from governance.core.excerpts import spaced

MOST_IMAGES = 10  # of one call, those included that are refused
HAS_ENDED = "The call has ended."

Show = Callable[[bytes, str], Awaitable[str]]
"""Shows an image under a name, and returns the line that stands for it in the result."""


class ImageRefused(Exception):
    """The host does not keep an image; the text is a sentence that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultImage:
    """An image that a call has shown, by the id under which its host keeps it."""

    id: str
    name: str
    media_type: str
    size: int
    width: int
    height: int

    def to_json(self) -> dict[str, Any]:
        """Return it as it is stored with its call."""
        return asdict(self)


class KeepImage(Protocol):
    """Reads an image that a tool has, and keeps it. Raises `ImageRefused`: the bytes may be anything."""

    async def __call__(self, content: bytes, *, name: str) -> ResultImage: ...


class CallImages:
    """The images of one call; `keep` is its host's, None where nobody would see them."""

    __slots__ = ("_is_closed", "_loop", "_token", "_tried", "keep", "shown")

    def __init__(self, token: CancellationToken) -> None:
        self.keep: KeepImage | None = None
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._tried = 0
        self._is_closed = False
        self.shown: tuple[ResultImage, ...] = ()

    def close(self) -> None:
        """Take nothing more: the call has its outcome."""
        self._is_closed = True

    async def show(self, content: bytes, name: str) -> str:
        """Show one more. Return the line that stands for it in the result."""
        if self.keep is None:
            return not_shown(content)
        if self._is_closed:
            return not_shown(content, HAS_ENDED)
        if self._tried >= MOST_IMAGES:
            return not_shown(content, f"A call shows {MOST_IMAGES} images at most.")
        self._tried += 1  # before the wait: threads may show several at once
        try:
            image = await self.keep(content, name=name)
        except ImageRefused as refused:
            return not_shown(content, str(refused))
        return self._add(image, content)

    def show_blocking(self, content: bytes, name: str) -> str:
        """Do the same from another thread. Raise `Cancelled` once the call was asked to stop."""
        if _get_running_loop() is self._loop:
            raise RuntimeError("A coroutine awaits show_image: this would block its own loop.")
        self._token.raise_if_cancelled()
        if self._is_closed:  # its loop may be closed too
            return not_shown(content, HAS_ENDED)
        showing = asyncio.run_coroutine_threadsafe(self.show(content, name), self._loop)
        forget = self._token.on_cancel(lambda _: showing.cancel())
        try:
            return showing.result()
        except concurrent.futures.CancelledError:
            self._token.raise_if_cancelled()
            raise
        finally:
            forget()

    def _add(self, image: ResultImage, content: bytes) -> str:
        if self._is_closed:  # the call has ended while its host kept the image
            return not_shown(content, HAS_ENDED)
        self.shown += (image,)
        return f"[image {image.name}: {image.media_type}, {image.width} × {image.height} pixels]"


async def show_nowhere(content: bytes, _name: str) -> str:
    """Show nothing to anybody, and say so."""
    return not_shown(content)


def not_shown(content: bytes, why: str = "") -> str:
    """Return the line that stands for an image that nobody sees."""
    return f"[image, {spaced(len(content))} bytes, not shown{f': {why}' if why else ''}]"
