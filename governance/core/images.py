"""Images that calls show in addition to their results.

The host of a call stores its images, and the call's result says whether each image was stored.
"""

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from governance.core.cancellation import CancellationToken, is_running_here
from governance.core.excerpts import spaced

MOST_IMAGES = 10  # per call, including refused images
HAS_ENDED = "The call has ended."

Show = Callable[[bytes, str], Awaitable[str]]
"""A function that shows an image under a name, and returns the line that represents the image in the result."""


class ImageRefused(Exception):
    """The host refused to store an image. The exception's text is a sentence with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultImage:
    """An image that a call has shown, with the id under which its host stores it."""

    id: str
    name: str
    media_type: str
    size: int
    width: int
    height: int

    def to_json(self) -> dict[str, Any]:
        """Return the image's metadata as stored with its call."""
        return asdict(self)


class KeepImage(Protocol):
    """A function that stores a tool's image. It raises `ImageRefused` if the bytes are not an accepted image."""

    async def __call__(self, content: bytes, *, name: str) -> ResultImage: ...


class CallImages:
    """The images of one call. `keep` is the host's function that stores them; if it is `None`, no images are shown."""

    __slots__ = ("_is_closed", "_loop", "_token", "_tried", "keep", "shown")

    def __init__(self, token: CancellationToken) -> None:
        self.keep: KeepImage | None = None
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._tried = 0
        self._is_closed = False
        self.shown: tuple[ResultImage, ...] = ()

    def close(self) -> None:
        """Refuse further images, because the call has its outcome."""
        self._is_closed = True

    async def show(self, content: bytes, name: str) -> str:
        """Show an image. Return the line that represents it in the result."""
        if self.keep is None:
            return not_shown(content)
        if self._is_closed:
            return not_shown(content, HAS_ENDED)
        if self._tried >= MOST_IMAGES:
            return not_shown(content, f"A call shows {MOST_IMAGES} images at most.")
        # Count the image before the wait, because several threads may show images simultaneously.
        self._tried += 1
        try:
            image = await self.keep(content, name=name)
        except ImageRefused as refused:
            return not_shown(content, str(refused))
        return self._add(image, content)

    def show_blocking(self, content: bytes, name: str) -> str:
        """Show an image from another thread, and return its line. Raise `Cancelled` if the call is being cancelled."""
        if is_running_here(self._loop):
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
        if self._is_closed:  # the call ended while its host was storing the image
            return not_shown(content, HAS_ENDED)
        self.shown += (image,)
        return f"[image {image.name}: {image.media_type}, {image.width} × {image.height} pixels]"


async def show_nowhere(content: bytes, _name: str) -> str:
    """Return the line that replaces an image in the result, for a host that shows no images."""
    return not_shown(content)


def not_shown(content: bytes, why: str = "") -> str:
    """Return the line that the result contains in place of an image that was not shown."""
    return f"[image, {spaced(len(content))} bytes, not shown{f': {why}' if why else ''}]"
