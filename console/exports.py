"""Export a history list as CSV or JSON, with the search and filters that the list shows.

Rows are read in batches, each by a short query that continues after the last row of the previous one. A slow download
therefore holds no cursor and no connection, and new rows do not shift the export.
"""

import csv
import io
import json
import re
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
from functools import partial
from typing import Any, cast
from uuid import UUID

from django.contrib.admin.views.main import SEARCH_VAR
from django.contrib.auth import get_user_model
from django.db.models import Case, CharField, F, Model, QuerySet, Value, When
from django.db.models.functions import Cast, Concat
from django.http import HttpRequest, QueryDict, StreamingHttpResponse

from console.links import USERNAME
from console.search import as_id
from governance import activity, db_clock
from governance.db import run_in_db_thread, run_in_pool_thread
from governance.keysets import Keyset
from governance.models import Export
from turns.models import Acknowledgement, Turn

BATCH = 500  # rows that are read by one query
CONTENT_BATCH = 50  # smaller, because these batches may contain whole results
MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
# Spreadsheets evaluate cells that begin like this as formulas; some also evaluate what follows a separator or line break.
_BEGINNING = re.compile(r"(^|[;\t\r\n])([\s\"]*)([=+\-@\uff1d\uff0b\uff0d\uff20]?)")
VIEW_ONLY = ("e", "o", "p")  # parameters of the list's address that only affect how it looks

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Extra columns for each row. `read` returns the values of one batch in a single query.

    Only users with the `permission` get them.
    """

    names: tuple[str, ...]
    read: Callable[[Sequence[Row]], Iterable[Mapping[str, Any]]]
    are_content: bool = False
    permission: str = ""

    def are_for(self, reader: Any, *, with_content: bool) -> bool:
        may_see = not self.permission or reader.has_perm(self.permission)
        return may_see and (with_content or not self.are_content)


class ListReader:
    """Reads a list in its order, batch by batch."""

    def __init__(
        self,
        rows: QuerySet[Any],
        *,
        order: Iterable[str],
        hidden: Iterable[str],
        added: Iterable[Columns],
        with_content: bool,
    ) -> None:
        meta = rows.model._meta
        pk = meta.pk.attname
        keys = [name.replace("pk", pk) if name in ("pk", "-pk") else name for name in order]
        order = keys if {pk, f"-{pk}"} & set(keys) else [*keys, f"-{pk}"]
        columns = (field.attname for field in meta.concrete_fields)
        self._fields = [name for name in columns if name not in hidden]
        self._added = list(added)
        self.names = [*self._fields, *(name for columns in self._added for name in columns.names)]
        self._size = CONTENT_BATCH if with_content else BATCH
        self._keyset = Keyset(order)
        self._rows = self._keyset.sort(rows)
        self._last: list[Any] = []

    def read(self) -> list[Row]:
        """Return the next batch of rows; empty after the last row."""
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


class Exporting:
    """A running export: it produces the file part by part and records its progress.

    JSON is one array with an object per row, so a file without the closing bracket is incomplete.
    """

    def __init__(self, reader: ListReader, *, record: Export) -> None:
        self._reader = reader
        self._is_json = record.format == "json"
        self._separator = "\n"
        self._record = Export.objects.filter(pk=record.pk)

    def begin(self) -> bytes:
        return _encode("[" if self._is_json else _lines([self._reader.names]))

    def read(self) -> tuple[int, bytes]:
        """Return the number of rows in the next batch, and the encoded batch."""
        rows = [[row[name] for name in self._reader.names] for row in self._reader.read()]
        return len(rows), _encode(self._as_json(rows) if self._is_json else _lines(rows))

    def count(self, rows: int) -> None:
        """Add `rows` to the recorded number of rows, before these rows are sent."""
        self._record.update(rows=F("rows") + rows)

    def end(self) -> bytes:
        """Record that the export is complete, and return the footer."""
        self._record.update(finished_at=db_clock.now())
        return _encode("\n]\n" if self._is_json else "")

    def _as_json(self, rows: Iterable[Sequence[Any]]) -> str:
        parts = []
        for row in rows:
            values = zip(self._reader.names, map(_plain, row), strict=True)
            parts += [self._separator, json.dumps(dict(values))]
            self._separator = ",\n"
        return "".join(parts)


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    """Return CSV lines in which no cell is read as a formula."""
    text = io.StringIO()
    csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")  # stored JSON can contain lone surrogates


def _plain(value: Any) -> Any:
    """Return a value that JSON can encode."""
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def _cell(value: Any) -> Any:
    """Return a value as one cell, prefixed with an apostrophe if a spreadsheet would read it as a formula."""
    plain = _plain(value)
    if isinstance(plain, dict | list):
        plain = json.dumps(plain, ensure_ascii=False)
    return _BEGINNING.sub(_as_text, plain) if isinstance(plain, str) else plain


def _as_text(beginning: re.Match[str]) -> str:
    before, space, sign = beginning.groups()
    return f"{before}'{space}{sign}" if sign else beginning[0]


def begin(
    request: HttpRequest,
    reader: ListReader,
    *,
    query: QueryDict,
    source: type[Model],
    format: str,
    has_content: bool,
    content_fields: Collection[str],
) -> StreamingHttpResponse:
    """Record the export with its query, and return a response that reads the rows while it streams the file."""
    at, by = db_clock.now(), cast(Any, request.user)
    filters: dict[str, Any] = dict(query.lists())
    # Search terms about content are stored separately, because users who may not see content must not read them.
    about = {SEARCH_VAR, *content_fields} if has_content and content_fields else set()
    terms = {name: values for name, values in filters.items() if name.split("__")[0] in about}
    record = Export.objects.create(
        source=source._meta.label,
        filters={**filters, **{name: [activity.HIDDEN] for name in terms}},
        terms=terms,
        format=format,
        has_content=has_content,
        by=by,
        by_name=by.get_username()[:150],
    )
    activity.record(
        "export",
        "export",
        source=record,
        subject=source._meta.label,
        changes={"format": format, "has_content": has_content},
        by_id=by.pk,
        by_name=record.by_name,
        at=at,
    )
    exporting = Exporting(reader, record=record)
    # Under WSGI, whose requests always have this key, Django iterates a response in a thread; otherwise, in a coroutine.
    parts = _iterate(exporting) if "wsgi.version" in request.META else _stream(exporting)
    answer = StreamingHttpResponse(parts, content_type=MEDIA_TYPES[format])
    name = f"{source._meta.model_name}-{at:%Y%m%dT%H%M%SZ}.{format}"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


async def _stream(exporting: Exporting) -> AsyncIterator[bytes]:
    read, count = run_in_pool_thread(exporting.read), run_in_db_thread(exporting.count)
    yield exporting.begin()
    while (batch := await read())[0]:
        await count(batch[0])
        yield batch[1]
    yield await run_in_db_thread(exporting.end)()


def _iterate(exporting: Exporting) -> Iterator[bytes]:
    """Yield the parts of the file, for a WSGI server."""
    yield exporting.begin()
    while (batch := exporting.read())[0]:
        exporting.count(batch[0])
        yield batch[1]
    yield exporting.end()


# Facts about the turn of each row: its owner, agent and process, and the answer to a cancel word.

_PROCESS = Case(  # the name of a process as the pages show it
    When(owner=None, then=None),
    When(owner__name="", then=Concat("owner__host", Value(":"), Cast("owner__pid", CharField()))),
    default="owner__name",
    output_field=CharField(),
)
_FACTS: dict[str, Any] = {
    "user": f"conversation__owner__{USERNAME}",
    "agent": "agent",
    "turn_number": "number",
    "process": _PROCESS,
}


def of_turns(key: str, names: Sequence[str] = tuple(_FACTS)) -> Columns:
    """Return columns about the turn whose id each row has under `key`."""
    read = partial(_facts_of_turns, names=names, key=key)
    return Columns(names=tuple(names), read=read, permission="turns.view_turn")


def _facts_of_turns(rows: Sequence[Row], *, names: Sequence[str], key: str) -> Iterator[Row]:
    ids = [as_id(str(row[key])) for row in rows]  # governance accepts any text as a group
    turns = Turn.objects.order_by().filter(pk__in={pk for pk in ids if pk})
    facts = turns.values_list("pk", *(_FACTS[name] for name in names))
    facts_by_turn = {pk: values for pk, *values in facts}
    nothing = [None] * len(names)
    return (dict(zip(names, facts_by_turn.get(pk, nothing), strict=True)) for pk in ids)


def _owners(rows: Sequence[Row]) -> Iterator[Row]:
    users = get_user_model()._default_manager.filter(pk__in={row["owner_id"] for row in rows})
    usernames = dict(users.values_list("pk", USERNAME))
    return ({"user": usernames.get(row["owner_id"])} for row in rows)


def _answers(rows: Sequence[Row]) -> Iterable[Row]:
    acknowledgements = Acknowledgement.objects.order_by().filter(
        request_id__in=[row["id"] for row in rows]
    )
    facts_by_request = {
        pk: facts for pk, *facts in acknowledgements.values_list("request_id", "said", "text")
    }
    for row in rows:
        word, answer = facts_by_request.get(row["id"], (None, None))
        yield {"said": word, "answer": answer}


OWNERS = Columns(names=("user",), read=_owners)
ANSWERS = Columns(names=("said", "answer"), read=_answers, are_content=True)
