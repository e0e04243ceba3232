"""Log formatters that write each message with its facts, as `key=value` or as JSON.

Most lines that this project logs have ids in `extra`, which a plain formatter drops. Lines written in a turn, including
those of tools and libraries, also get the turn's ids. This module needs no Django.
"""

import json
import logging
import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import UUID

from governance.core.excerpts import shortened

_LONGEST = 200
_PLAIN = re.compile(r"[\w.:/@+*,-]+", re.ASCII)
_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_bound: ContextVar[Mapping[str, Any]] = ContextVar("facts of the log", default={})  # noqa: B039 - never changed


def bind(**facts: Any) -> None:
    """Add these fields to every later log line of this task and of the tasks that it starts."""
    _bound.set({**_bound.get(), **facts})


class ShortLines(logging.Filter):
    """A filter that prevents errors that any client can cause from filling the log: each gets one line, without a
    traceback.

    Django writes a traceback for each request with a wrong `Host`, and for each page that a user may not see.
    If asyncio cannot accept connections, it logs this about a hundred times every second; the filter passes one of
    these lines every `PAUSE` seconds.
    """

    PAUSE = 10.0
    _ASYNCIO_SAYS = "socket.accept() out of system resource"

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten the record, and return whether it is written."""
        is_refused = getattr(record, "status_code", None) == HTTPStatus.FORBIDDEN
        if record.name.startswith("django.security.") or is_refused:
            record.exc_info = record.exc_text = None
        if record.name != "asyncio" or not str(record.msg).startswith(self._ASYNCIO_SAYS):
            return True
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self.PAUSE
        reason = record.exc_info[1] if record.exc_info else ""
        record.msg, record.args = "No connection can be accepted: %s", (reason,)
        record.exc_info = record.exc_text = None
        return True


class KeyValueFormatter(logging.Formatter):
    """Appends the facts of a record to its message, before a traceback: `A turn ended turn_id=6b… status=completed`.

    Facts are the strings, numbers and ids in `extra`, and those of `bind`. A value with a space is quoted. Control
    characters in the message are escaped, because libraries log input as it is, and a line break could forge a line.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in logging
        """Return the line without a traceback."""
        record.message = _on_one_line(record.message)
        facts = [f"{name}={_written(value)}" for name, value in _facts(record).items()]
        return " ".join([super().formatMessage(record), *facts])


class JsonFormatter(logging.Formatter):
    """Writes each record as one line of JSON: `at`, `level`, `logger`, `message`, its facts, and `exception` if it has one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line = {**_facts(record), **line}  # facts never replace the line's own keys
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return _as_json(line)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    """Return the facts of a record: the strings, numbers and ids in its `extra`, then those of `bind`."""
    extra = {name: value for name, value in vars(record).items() if name not in _FIELDS}
    facts = extra | {name: value for name, value in _bound.get().items() if name not in extra}
    return {name: value for name, value in facts.items() if _is_writable(value)}


def _is_writable(value: object) -> bool:
    return isinstance(value, str | int | float | UUID) and value != ""


def _written(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    text = shortened(text, limit=_LONGEST)
    if _PLAIN.fullmatch(text):
        return text
    return _as_json(text)


def _on_one_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _as_json(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value, default=str)
