"""What a queryset makes of the rows that the database returns, for SQL that was built once (sync ORM)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pydantic_core
from django.db.models import JSONField, Model, signals
from django.db.models.base import ModelState
from django.db.models.expressions import Col
from django.db.models.fields.related_descriptors import ForeignKeyDeferredAttribute
from django.db.models.query_utils import DeferredAttribute

Convert = Callable[[Any], Any]

_OWN_BACKENDS = frozenset({"postgresql", "sqlite"})  # whose converters leave None as it is


class RowReader:
    """Makes of a row what its queryset would: an instance, or a tuple."""

    def __init__(self, compiler: Any, *, is_model: bool, fetch_mode: Any) -> None:
        # A connection that is never opened: this lives longer than the thread of the one that is.
        unopened = compiler.connection.copy()
        self._quick: list[tuple[int, Convert]] = []
        self._others: list[tuple[int, Any, Any, bool]] = []
        for place, (column, _sql, _alias) in enumerate(compiler.select):
            self._look_at(place, column, unopened)
        self._annotations = dict(compiler.annotation_col_map or {})
        self._made: _InstanceReader | None = None
        if is_model:
            self._made = _InstanceReader(compiler.klass_info, compiler.select, fetch_mode)

    def __call__(self, row: Sequence[Any], database: Any) -> Any:
        values = list(row)
        for place, quick in self._quick:
            if (value := values[place]) is not None:
                values[place] = quick(value)
        for place, convert, column, leaves_none in self._others:
            value = values[place]
            if value is not None or not leaves_none:
                values[place] = convert(value, column, database)
        if self._made is None:
            return tuple(values)
        made = self._made(values, database.alias)
        for name, place in self._annotations.items():
            setattr(made, name, values[place])
        return made

    def _look_at(self, place: int, column: Any, database: Any) -> None:
        """Find out how the values of a column are converted."""
        by_database = database.ops.get_db_converters(column)
        by_field = column.get_db_converters(database)
        if quick := _quick_converter([*by_database, *by_field], column, database):
            self._quick.append((place, quick))
            return
        leaves_none = database.vendor in _OWN_BACKENDS
        self._others += [(place, convert, column, leaves_none) for convert in by_database]
        self._others += [(place, convert, column, False) for convert in by_field]


def _quick_converter(converters: Sequence[Any], column: Any, database: Any) -> Convert | None:
    """Return what does the same to values but None in less time, or None if these converters are anything else."""
    if len(converters) != 1 or database.vendor not in _OWN_BACKENDS:
        return None
    (convert,) = converters
    if getattr(convert, "__func__", None) is JSONField.from_db_value:
        return _json_parser(convert, column, database) if isinstance(column, Col) else None
    name = getattr(convert, "__name__", "")
    if database.vendor != "sqlite" or name not in _OF_TEXT:
        return None
    # The same ids and moments are in many rows of a turn.
    cached = lru_cache(maxsize=1024)(lambda value: convert(value, column, database))
    return _cached.setdefault(name, cached)


_OF_TEXT = frozenset(
    {"convert_booleanfield_value", "convert_datetimefield_value", "convert_uuidfield_value"}
)
_cached: dict[str, Convert] = {}


def _json_parser(convert: Any, column: Any, database: Any) -> Convert | None:
    if column.target.decoder is not None:
        return None

    def parse(value: Any) -> Any:
        try:
            return pydantic_core.from_json(value)
        except ValueError:
            return convert(value, column, database)

    return parse


class _InstanceReader:
    """Makes an instance of its part of a row, with those that `select_related` has brought along.

    `fetch_mode` is how fields that were not read are fetched (Django 6.1), None = no such thing.
    """

    def __init__(self, known: Mapping[str, Any], select: Sequence[Any], fetch_mode: Any) -> None:
        self._model: Any = known["model"]
        self._fetch_mode = fetch_mode
        places = known["select_fields"]
        self._columns = slice(places[0], places[-1] + 1)
        fields = [each[0].target for each in select[self._columns]]
        self._names = [field.attname for field in fields]
        self._is_plain = _is_made_plainly(self._model, fields)
        self._key = places[0] + self._names.index(self._model._meta.pk.attname)
        below = known.get("related_klass_infos", [])
        if any(each["from_parent"] for each in below):
            raise NotImplementedError("A row of a child's table is not read from its parent's.")
        self._related = [
            (_InstanceReader(each, select, fetch_mode), each["local_setter"], each["remote_setter"])
            for each in below
        ]

    def __call__(self, values: Sequence[Any], alias: str) -> Any:
        made = self._make(values[self._columns], alias)
        if self._fetch_mode is not None:
            made._state.fetch_mode = self._fetch_mode
        for read, set_here, set_there in self._related:
            other = None if values[read._key] is None else read(values, alias)
            set_here(made, other)
            if other is not None:
                set_there(other, made)
        return made

    def _make(self, values: Sequence[Any], alias: str) -> Any:
        """Return an instance as `from_db` does; where all of that is Django's own, without a call for each field."""
        model = self._model
        if not self._is_plain or is_listened_to(model):
            return model.from_db(alias, self._names, values)
        made = model.__new__(model)
        made._state = state = ModelState()
        state.adding, state.db = False, alias
        made.__dict__.update(zip(self._names, values, strict=True))
        return made


def is_listened_to(model: type[Model]) -> bool:
    """Whether somebody is told of each new instance of a model."""
    before, after = signals.pre_init, signals.post_init
    if not (before.receivers or after.receivers):  # in most projects nobody is told of any
        return False
    return before.has_listeners(model) or after.has_listeners(model)


def _is_made_plainly(model: Any, fields: Iterable[Any]) -> bool:
    """Whether an instance with these fields is what Django makes of them: values in its `__dict__`."""
    is_own = model.__init__ is Model.__init__ and model.from_db.__func__ is Model.from_db.__func__  # type: ignore[attr-defined]
    plain = (DeferredAttribute, ForeignKeyDeferredAttribute)
    return is_own and all(field.descriptor_class in plain for field in fields)
