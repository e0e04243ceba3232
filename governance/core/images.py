"""Images that calls show beside their results: the host of a call keeps them, the result says what became of each."""

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from governance.core.excerpts import spaced

MOST_IMAGES = 10  # of one call


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

    def __init__(self) -> None:
        self.keep: KeepImage | None = None
        self._shown: list[ResultImage] = []

    @property
    def shown(self) -> tuple[ResultImage, ...]:
        """What the call has shown so far."""
        return tuple(self._shown)

    async def show(self, content: bytes, name: str) -> str:
        """Show one more. Return the line that stands for it in the result."""
        if self.keep is None:
            return not_shown(content)
        if len(self._shown) >= MOST_IMAGES:
            return not_shown(content, f"A call shows {MOST_IMAGES} images at most.")
        try:
            image = await self.keep(content, name=name)
        except ImageRefused as refused:
            return not_shown(content, str(refused))
        self._shown.append(image)
        return f"[image {image.name}: {image.media_type}, {image.width} × {image.height} pixels]"


def not_shown(content: bytes, why: str = "") -> str:
    """Return the line that stands for an image that nobody sees."""
    return f"[image, {spaced(len(content))} bytes, not shown{f': {why}' if why else ''}]"
