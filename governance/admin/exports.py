"""Exports of the lists of history: what a list shows as it stands, as CSV or JSON. It is read batch by batch."""

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.admin.views.main import SEARCH_VAR
from django.core.handlers.asgi import ASGIRequest
from django.db.models import F, Model, QuerySet
from django.http import HttpRequest, QueryDict, StreamingHttpResponse
from django.utils import timezone

from governance.db import run_in_db_thread, run_in_pool_thread
from governance.keysets import Keyset
from governance.models import Export
from governance.models.exports import HIDDEN

BATCH = 500  # rows of one read
CONTENT_BATCH = 50  # the same where whole results may be among them
# What a spreadsheet takes for a formula: at the beginning, or behind what may end a cell or a line.
_BEGINNING = re.compile(r"(^|[;\t\r\n])([\s\"]*)([=+\-@\uff1d\uff0b\uff0d\uff20]?)")
VIEW_ONLY = ("e", "o", "p")  # of a list's address: says how a page looks, not which rows are in it

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Columns that another app adds. `read` takes the rows of one batch and returns what to add to each, in one read.

    Only who has the `permission` gets them.
    """

    names: tuple[str, ...]
    read: Callable[[Sequence[Row]], Iterable[Mapping[str, Any]]]
    are_content: bool = False
    permission: str = ""

    def are_for(self, reader: Any, *, with_content: bool) -> bool:
        """Whether a user may see them."""
        may_see = not self.permission or reader.has_perm(self.permission)
        return may_see and (with_content or not self.are_content)


_added: dict[str, list[Columns]] = defaultdict(list)


def add_columns(source: str, columns: Columns) -> None:
    """Add columns to every export of a model ("app.Model")."""
    _added[source].append(columns)


class ListReader:
    """Reads a list along its order, each batch from behind the last row of the one before.

    No cursor stays open. What is added meanwhile moves no row into another batch.
    """

    def __init__(
        self,
        rows: QuerySet[Any],
        *,
        order: Iterable[str],
        hidden: Iterable[str],
        reader: Any,
        with_content: bool,
    ) -> None:
        meta = rows.model._meta
        pk = meta.pk.attname
        wanted = [name.replace("pk", pk) if name in ("pk", "-pk") else name for name in order]
        order = wanted if {pk, f"-{pk}"} & set(wanted) else [*wanted, f"-{pk}"]
        columns = (field.attname for field in meta.concrete_fields)
        self._fields = [name for name in columns if name not in hidden]
        added = _added[meta.label]
        self._added = [it for it in added if it.are_for(reader, with_content=with_content)]
        self._size = CONTENT_BATCH if with_content else BATCH
        self._keyset = Keyset(order)
        self._rows = self._keyset.sort(rows)
        self._last: list[Any] = []

    @property
    def names(self) -> list[str]:
        return [*self._fields, *(name for columns in self._added for name in columns.names)]

    def read(self) -> list[Row]:
        """Read the next batch; nothing after the last row."""
        rows, keys = self._rows, self._keyset.names
        if self._last:
            rows = rows.filter(self._keyset.behind(self._last))
        batch = list(rows.values(*self._fields, *keys)[: self._size])
        for row in batch:
            self._last = [row.pop(name) for name in keys]
        for columns in self._added:
            for row, more in zip(batch, columns.read(batch), strict=True):
                row.update(more)
        return batch


class CsvFormat:
    """Lines of cells; no spreadsheet takes one for a formula."""

    media_type = "text/csv; charset=utf-8"

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def begin(self) -> str:
        return self._lines([self._names])

    def write(self, rows: Iterable[Row]) -> str:
        return self._lines([_cell(row[name]) for name in self._names] for row in rows)

    def end(self) -> str:
        """Return nothing: lines need no end."""
        return ""

    def _lines(self, lines: Iterable[Sequence[Any]]) -> str:
        text = io.StringIO()
        csv.writer(text).writerows(lines)
        return text.getvalue()


class JsonFormat:
    """One array with an object for each row. Without its closing bracket, the export is not whole."""

    media_type = "application/json"

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._separator = "\n"

    def begin(self) -> str:
        return "["

    def write(self, rows: Iterable[Row]) -> str:
        parts = []
        for row in rows:
            parts += [
                self._separator,
                json.dumps({name: _plain(row[name]) for name in self._names}),
            ]
            self._separator = ",\n"
        return "".join(parts)

    def end(self) -> str:
        return "\n]\n"


FORMATS: dict[str, type[CsvFormat] | type[JsonFormat]] = {"csv": CsvFormat, "json": JsonFormat}


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def _cell(value: Any) -> Any:
    """Return a value as one cell. What a spreadsheet would take for a formula gets an apostrophe before it."""
    plain = _plain(value)
    if isinstance(plain, dict | list):
        plain = json.dumps(plain, ensure_ascii=False)
    return _BEGINNING.sub(_as_text, plain) if isinstance(plain, str) else plain


def _as_text(beginning: re.Match[str]) -> str:
    before, space, sign = beginning.groups()
    return f"{before}'{space}{sign}" if sign else beginning[0]


class Exporting:
    """One export while it goes on: the next batch as bytes, and its record."""

    def __init__(self, reader: ListReader, *, record: Export) -> None:
        self._reader = reader
        self._format = FORMATS[record.format](reader.names)
        self._record = Export.objects.filter(pk=record.pk)

    def begin(self) -> bytes:
        """Return what stands before the first row."""
        return _encode(self._format.begin())

    def read(self) -> tuple[int, bytes]:
        """Return how many rows the next batch has, and the batch."""
        rows = self._reader.read()
        return len(rows), _encode(self._format.write(rows))

    def count(self, rows: int) -> None:
        """Record rows that are about to be sent."""
        self._record.update(rows=F("rows") + rows)

    def end(self) -> bytes:
        """Record that all is read, and return what stands after the last row."""
        self._record.update(finished_at=timezone.now())
        return _encode(self._format.end())


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")  # stored JSON can hold half a character


def begin(
    request: HttpRequest,
    reader: ListReader,
    *,
    asked: QueryDict,
    source: type[Model],
    format: str,
    has_content: bool,
    content_fields: Collection[str],
) -> StreamingHttpResponse:
    """Record an export with what is asked for, and return it as a file. Rows are read while the file is sent."""
    at = timezone.now()
    filters = dict(asked.lists())
    # Whoever sees no content cannot write it either.
    about = {SEARCH_VAR, *content_fields} if has_content and content_fields else set()
    record = _record(
        source, filters, about=about, format=format, has_content=has_content, by=request.user
    )
    exporting = Exporting(reader, record=record)
    parts = _stream(exporting) if isinstance(request, ASGIRequest) else _iterate(exporting)
    answer = StreamingHttpResponse(parts, content_type=FORMATS[format].media_type)
    name = f"{source._meta.model_name}-{at:%Y%m%dT%H%M%SZ}.{format}"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _record(
    source: type[Model],
    filters: Mapping[str, Any],
    *,
    about: Collection[str],
    format: str,
    has_content: bool,
    by: Any,
) -> Export:
    """Write an export down. Filters that are `about` content are kept apart, as `terms`."""
    terms = {name: values for name, values in filters.items() if name.split("__")[0] in about}
    return Export.objects.create(
        source=source._meta.label,
        filters={**filters, **{name: [HIDDEN] for name in terms}},
        terms=terms,
        format=format,
        has_content=has_content,
        by=by,
        by_name=by.get_username()[:150],
    )


async def _stream(exporting: Exporting) -> AsyncIterator[bytes]:
    read, count = run_in_pool_thread(exporting.read), run_in_db_thread(exporting.count)
    yield exporting.begin()
    while (batch := await read())[0]:
        await count(batch[0])
        yield batch[1]
    yield await run_in_db_thread(exporting.end)()


def _iterate(exporting: Exporting) -> Iterator[bytes]:
    """Do the same for a server that knows no asyncio."""
    yield exporting.begin()
    while (batch := exporting.read())[0]:
        exporting.count(batch[0])
        yield batch[1]
    yield exporting.end()
