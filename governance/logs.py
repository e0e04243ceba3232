"""Log lines that say what they are about: each message is followed by its facts, as `key=value` or as JSON.

Most lines of this project carry ids in `extra`, which a plain formatter drops. Lines that are written while a turn runs,
those of tools and libraries included, get the turn's ids too. Needs no Django.
"""

import json
import logging
import re
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from governance.core.excerpts import shortened

_LONGEST = 200
_PLAIN = re.compile(r"[\w.:/@+*,-]+", re.ASCII)
_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_bound: ContextVar[Mapping[str, Any]] = ContextVar("facts of the log", default={})  # noqa: B039 - never changed


def bind(**facts: Any) -> None:
    """Add these facts to every later log line of this task and of the tasks that it starts."""
    _bound.set({**_bound.get(), **facts})


class KeyValueFormatter(logging.Formatter):
    """Puts the facts of a record behind its message, before a traceback: `A turn ended turn_id=6b… status=completed`.

    Facts are the texts, numbers and ids in `extra`, and what is bound. A value with a space in it is in quotes.
    Control characters of the message are escaped: libraries put into it what people send, a line break with more behind it.
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
        line = {**_facts(record), **line}  # a fact never replaces what the line itself says
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return _as_json(line)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    """What a line says of a record: the texts, numbers and ids in its `extra`, then what is bound."""
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
