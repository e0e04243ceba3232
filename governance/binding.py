"""Prepares the values of fields for a database, by the shortest way for the value's type (sync ORM).

A field of Django prepares each value by four methods that call each other. If they are Django's own, the result
depends on the value's type alone. So the way is looked up once. Everything else goes the field's own way.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.backends.base.operations import BaseDatabaseOperations

Convert = Callable[[Any], Any]
ByType = Mapping[type, Convert | None]

_METHODS = ("get_db_prep_save", "get_db_prep_value", "get_prep_value", "to_python")
_INTEGERS: tuple[Any, ...] = (
    models.IntegerField,
    models.BigIntegerField,
    models.SmallIntegerField,
    models.PositiveIntegerField,
    models.PositiveBigIntegerField,
    models.PositiveSmallIntegerField,
)
_KNOWN: tuple[Any, ...] = (
    models.BooleanField,
    models.CharField,
    models.TextField,
    models.DateTimeField,
    models.UUIDField,
    models.JSONField,
    models.ForeignKey,
    models.AutoField,
    models.BigAutoField,
    *_INTEGERS,
)


class Binder(NamedTuple):
    """How values of one field are prepared: by their type. None is "as it is"; any other type is the field's."""

    by_type: ByType
    prepare: Convert

    def __call__(self, value: Any) -> Any:
        """Return a value as the database takes it."""
        convert = self.by_type.get(type(value), self.prepare)
        return value if convert is None else convert(value)


class RowBinder:
    """How a row of values is prepared. What rows need whose values have the same types is looked up once."""

    def __init__(self, binders: Iterable[Binder | None]) -> None:
        """Take the binder of each place; None leaves all of its values as they are."""
        self._binders = list(binders)
        self._conversions_of = lru_cache(maxsize=64)(self._find)

    def __call__(self, values: Iterable[Any]) -> list[Any]:
        """Return a row as the database takes it."""
        row = list(values)
        for place, convert in self._conversions_of(tuple(map(type, row))):
            row[place] = convert(row[place])
        return row

    def _find(self, types: Sequence[type]) -> list[tuple[int, Convert]]:
        """Return what converts the values of a row with these types, each with its place."""
        by_place = enumerate(zip(types, self._binders, strict=True))
        return [
            (place, convert)
            for place, (kind, binder) in by_place
            if binder and (convert := binder.by_type.get(kind, binder.prepare)) is not None
        ]


def binder_of(field: Any, *, for_save: bool, database: Any) -> Binder:
    """Return the binder of a field for databases of this kind; `database` is a connection that is never opened."""
    own = field.get_db_prep_save if for_save else field.get_db_prep_value

    def prepare(value: Any) -> Any:
        return own(value, connection=connections[DEFAULT_DB_ALIAS])

    return Binder(_by_type(field, prepare, database), prepare)


def is_stored_as_it_is(field: Any) -> bool:
    """Whether a new row is stored with the value of this field as it stands there."""
    is_moment = isinstance(field, models.DateTimeField)
    if is_moment and type(field).pre_save is models.DateTimeField.pre_save:
        return not (field.auto_now or field.auto_now_add)
    return type(field).pre_save in (models.Field.pre_save, models.ForeignKey.pre_save)


def _by_type(field: Any, prepare: Convert, database: Any) -> ByType:
    if not _is_known(field):
        return {}
    ops = database.ops
    match field:
        case models.ForeignKey():
            target = _by_type(field.target_field, prepare, database)
            kinds = {kind: convert for kind, convert in target.items() if kind is not str}
            return {**kinds, **_NULL}
        case models.BooleanField():
            return {bool: None, **_NULL}
        case models.CharField() | models.TextField():
            return {str: None, **_NULL}
        case models.UUIDField():
            is_native = database.features.has_native_uuid_field
            return {UUID: None if is_native else attrgetter("hex"), **_NULL}
        case models.DateTimeField():
            adapt = ops.adapt_datetimefield_value
            if database.vendor == "sqlite":
                adapt = _moment_adapters.setdefault("sqlite", lru_cache(maxsize=64)(adapt))
            return {datetime: partial(_aware, adapt, prepare), **_NULL}
        case models.JSONField():  # for whose None there are two words
            return dict.fromkeys((dict, list), _json_adapter(ops, field.encoder))
        case models.AutoField() | models.BigAutoField():
            return {int: ops.validate_autopk_value}
        case _:
            return {int: _adapted_integer(ops, field), **_NULL}


_ENCODE: Convert = json.JSONEncoder().encode
_NULL: dict[type, Convert | None] = {NoneType: None}
# A transaction stores the same moment in many rows. Where it becomes text, equal moments are stored alike.
_moment_adapters: dict[str, Convert] = {}


def _is_known(field: Any) -> bool:
    """Whether a field prepares values as Django's own field does whose kind it is."""
    bases = [known for known in _KNOWN if isinstance(field, known)]
    return any(
        all(getattr(type(field), name) is getattr(known, name) for name in _METHODS)
        for known in bases
    )


def _aware(adapt: Convert, prepare: Convert, value: datetime) -> Any:
    """A moment without its time zone is for the field to judge."""
    return prepare(value) if value.tzinfo is None else adapt(value)


def _json_adapter(ops: Any, encoder: Any) -> Convert:
    """Most values are empty, and all that are empty are alike."""
    adapt: Convert = partial(ops.adapt_json_value, encoder=encoder)
    if encoder is None and type(ops).adapt_json_value is BaseDatabaseOperations.adapt_json_value:
        adapt = _ENCODE  # which is what it does, with an encoder that is there already
    empty = {kind: adapt(kind()) for kind in (dict, list)}
    return lambda value: adapt(value) if value else empty[type(value)]


def _adapted_integer(ops: Any, field: Any) -> Convert | None:
    is_plain = type(ops).adapt_integerfield_value is BaseDatabaseOperations.adapt_integerfield_value
    # Only a server that gets values apart from their statement wants to know how wide a number is.
    if is_plain or not getattr(ops.connection.features, "uses_server_side_binding", True):
        return None
    return partial(ops.adapt_integerfield_value, internal_type=field.get_internal_type())
