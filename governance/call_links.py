"""Links of calls: apps above link the group of a call to what they know of it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Link:
    """What a call belongs to; without an address, the user may not open it, or it has no page."""

    text: str
    address: str = ""


Links = Mapping[str, Link]  # by the name of their column
Read = Callable[[Any, Collection[str]], Mapping[str, Links]]
"""Returns for a user the links of groups, by group; of all groups at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    read: Read
    labels: Mapping[str, Any]
    listed: Collection[str]


_sources: list[_Source] = []


def register(read: Read, *, labels: Mapping[str, Any], listed: Collection[str]) -> None:
    """Let `read` link groups under these labels, of which lists show some. The same one counts once."""
    if all(source.read is not read for source in _sources):
        _sources.append(_Source(read=read, labels=labels, listed=listed))


def labels() -> dict[str, Any]:
    return {name: label for source in _sources for name, label in source.labels.items()}


def listed() -> list[str]:
    return [name for source in _sources for name in source.listed]


def read(user: Any, groups: Collection[str]) -> dict[str, dict[str, Link]]:
    """Return what the user may know of where these groups belong."""
    found: dict[str, dict[str, Link]] = {}
    for source in _sources:
        for group, links in source.read(user, groups).items():
            found.setdefault(group, {}).update(links)
    return found
