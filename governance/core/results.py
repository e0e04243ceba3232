"""Convert a tool's return value to the text that the model reads.

This happens in the thread or process of the tool's body and within its time limit, because a lazy value, such as a
generator or a queryset, does its work only while it is converted.
"""

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pydantic
import pydantic_core

from governance.core.containment import contained
from governance.core.exceptions import ToolFailed
from governance.core.excerpts import as_displayed, excerpt

_PLAIN = (str, int, float, bool, type(None))
_PLAIN_CONTAINERS = (dict, list, tuple)
_MOST_PLAIN = 10_000  # maximum number of values in a container that is inspected on the event loop
_NAME_OF_AN_OBJECT = re.compile(r"<.+ at 0x[0-9a-f]+>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Written:
    value: Any
    text: str


class Unwritable(Exception):
    """A value cannot be converted to text. The exception's cause says why."""


class Writer:
    """A converter of one call's values to text.

    `stops` is called between the items of a lazy value. It may raise an exception, or return True to stop.
    """

    def __init__(
        self,
        *,
        limit: int,
        render: Callable[[Any], Any] | None = None,
        stops: Callable[[], bool] = lambda: False,
    ) -> None:
        self.limit = limit
        self._render = render
        self._stops = stops

    def writes_quickly(self, value: Any) -> bool:
        """Return whether the value can be converted on the event loop, because that runs no code of the tool."""
        return self._render is None and _is_plain(value)

    def write(self, value: Any) -> Written:
        """Return the value with its text. A lazy value is collected, up to the limit of a result.

        Raises:
            ToolFailed: the value is a coroutine or other work that was never run.
            Unwritable: the value cannot be converted to text.
        """
        refuse_undone(value)
        try:
            with contained():
                collected = self.collected(value)
                rendered = self._render(collected) if self._render else collected
                return Written(collected, as_text(rendered, limit=self.limit))
        except Exception as error:
            raise Unwritable from error

    async def collect(self, values: AsyncIterator[Any]) -> list[Any]:
        """Return the values of an asynchronous generator, up to the limit of a result."""
        items: list[Any] = []
        length = 0
        async for item in values:
            items.append(item)
            length += len(as_text(item, limit=self.limit))
            if length > self.limit:
                break
        return items

    def as_json(self, value: Any) -> Any:
        """Convert a value to JSON values, so that a worker process can send it. A lazy value becomes a list.

        Raises:
            ToolFailed: the value is a coroutine or other work that was never run.
        """
        if inspect.isasyncgen(value):
            value = asyncio.run(self.collect(value))
        else:
            refuse_undone(value)
            if not _is_lazy(value):
                return value
            value = self.collected(value)
        return pydantic_core.to_jsonable_python(value, fallback=_text_of)

    def collected(self, value: Any) -> Any:
        """Return a lazy value as a list, up to the limit of a result. Other values are returned unchanged."""
        if not _is_lazy(value):
            return value
        items: list[Any] = []
        length = 0
        try:
            for item in value:
                items.append(item)
                length += len(as_text(item, limit=self.limit))
                if length > self.limit or self._stops():
                    break
        finally:
            if inspect.isgenerator(value):
                value.close()
        return items


def refuse_undone(value: Any) -> None:
    """Raise `ToolFailed` if the value is a coroutine or other work that was never run."""
    if inspect.isawaitable(value) or inspect.isasyncgen(value):
        close = getattr(value, "close", None)
        if close is not None:  # closing avoids Python's warning that it was never awaited
            close()
        raise ToolFailed(
            f"The tool returned {_kind_of(value)} that it had not awaited, so part of its work was not done. "
            "This is a bug in the tool. Do not call it again, and report the problem."
        )


def as_text(value: Any, *, limit: int) -> str:
    """Return a value as text for the model: a string as a terminal displays it, and any other value as JSON.

    The middle of a long text is omitted.

    Raises:
        ValueError: the value has no JSON form: it is circular, or contains NaN, an infinite number or an arbitrary
        object.
    """
    if value is None:
        text = "Done."
    elif isinstance(value, str):
        text = as_displayed(value)
    else:
        text = pydantic_core.to_json(value, fallback=_text_of).decode()
        # Parse the JSON to find out whether such a word is a number or part of a string.
        if "NaN" in text or "Infinity" in text:
            json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
    return excerpt(text, limit=limit)


def _text_of(value: Any) -> Any:
    if _is_lazy(value):
        return list(value)
    text = str(value)
    if _NAME_OF_AN_OBJECT.fullmatch(text):  # the model would mistake such a string for a result
        raise ValueError(f"{_kind_of(value)} has no text of its own")
    return text


def _kind_of(value: Any) -> str:
    kind = type(value).__name__.replace("_", " ")
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _is_lazy(value: Any) -> bool:
    if isinstance(value, (*_PLAIN, *_PLAIN_CONTAINERS, bytes, bytearray, set, frozenset, Mapping)):
        return False
    return isinstance(value, Iterable) and not isinstance(value, pydantic.BaseModel)


def _is_plain(value: Any) -> bool:
    """Return whether a value consists only of built-in JSON types. Return False for large containers."""
    pending, count = [value], 0
    while pending:
        item = pending.pop()
        count += 1
        if count > _MOST_PLAIN:
            return False
        if type(item) in _PLAIN:
            continue
        if type(item) not in _PLAIN_CONTAINERS:
            return False
        pending += item.values() if isinstance(item, dict) else item
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")
