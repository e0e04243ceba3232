"""Histories as they were last read, rendered and checked, so that a turn reads only what was added since."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from sys import getsizeof
from typing import Any
from uuid import UUID

from turns.conf import app_settings
from turns.core.messages import (
    AttachmentBlock,
    Block,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)

_OVERHEAD = 500  # bytes of a message and its blocks, beside what they say


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The messages of a conversation up to `position`, a valid history in this version of it."""

    version: int
    position: int = 0
    messages: tuple[Message, ...] = ()
    memory: int = 0

    def followed_by(self, messages: Sequence[Message], *, position: int) -> "Settled":
        """Return what is settled when these messages stand behind it, the last one at `position`."""
        return Settled(
            version=self.version,
            position=position,
            messages=(*self.messages, *messages),
            memory=self.memory + sum(map(_memory_of, messages)),
        )


class HistoryCache:
    """The histories that were read last, together no larger than `max_bytes` says when one is added.

    It is never asked what counts: the database has the version, and of another version nothing is given.
    """

    def __init__(self, max_bytes: Callable[[], int]) -> None:
        self._max_bytes = max_bytes
        self._known: OrderedDict[UUID, Settled] = OrderedDict()
        self._memory = 0
        self._lock = threading.Lock()

    def get(self, conversation_id: UUID, *, version: int) -> Settled:
        """Return what is known of this version of a history; if nothing is, its beginning."""
        with self._lock:
            known = self._known.get(conversation_id)
            if known is None or known.version != version:
                return Settled(version=version)
            self._known.move_to_end(conversation_id)
            return known

    def put(self, conversation_id: UUID, settled: Settled) -> None:
        """Keep a history, and drop those that were not asked for the longest, while there are too many."""
        with self._lock:
            self._drop(conversation_id)
            self._known[conversation_id] = settled
            self._memory += settled.memory
            while self._memory > self._max_bytes():
                self._drop(next(iter(self._known)))

    def _drop(self, conversation_id: UUID) -> None:
        dropped = self._known.pop(conversation_id, None)
        self._memory -= dropped.memory if dropped else 0


CACHE = HistoryCache(lambda: app_settings.HISTORY_CACHE_MEMORY)


def _memory_of(message: Message) -> int:
    """About how many bytes a message takes."""
    return _OVERHEAD + sum(map(_memory_of_block, message.content))


def _memory_of_block(block: Block) -> int:
    match block:
        case TextBlock(text=text) | ToolResultBlock(content=text):
            return getsizeof(text)
        case AttachmentBlock():
            return _OVERHEAD
        case ToolUseBlock(input=arguments):
            return _memory_of_json(arguments)


def _memory_of_json(value: Any) -> int:
    parts: Iterable[Any] = ()
    if isinstance(value, Mapping):
        parts = chain(value.keys(), value.values())
    elif isinstance(value, list | tuple):
        parts = value
    return getsizeof(value) + sum(map(_memory_of_json, parts))
