"""The slow path of what is there for speed: the querysets of prepared statements, and rows to compare."""

import functools
import importlib
import json
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from django.apps import apps
from django.db.models import AutoField

import governance
import turns
import webchat
from governance.prepared_statements import Insert, Select, Update
from turns.models import Process, Turn
from turns.storage import access

Statement = Select[Any] | Update | Insert[Any]


def prepared_statements() -> dict[str, Statement]:
    """Return every prepared statement of the project, by the first place where it stands."""
    found: dict[Statement, str] = {access._active_user(): "turns.storage.access._active_user"}
    for package in (governance, turns, webchat):
        for known in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if known.name.endswith("__main__") or ".migrations" in known.name:
                continue
            for name, value in vars(importlib.import_module(known.name)).items():
                for place, statement in _statements_in(value, f"{known.name}.{name}"):
                    found.setdefault(statement, place)
    return {place: statement for statement, place in found.items()}


def _statements_in(value: Any, place: str) -> Iterator[tuple[str, Statement]]:
    if isinstance(value, Select | Update | Insert):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in list(value.items()):
            yield from _statements_in(inner, f"{place}[{key}]")


@contextmanager
def slow_statements() -> Iterator[None]:
    """Let every prepared statement go the way of its queryset or its model."""
    with pytest.MonkeyPatch.context() as patch:
        for kind, name, slowly in _SLOWLY:
            original = getattr(kind, name)
            patch.setattr(kind, name, functools.wraps(original)(slowly))
        yield


def select(statement: Select[Any], **values: Any) -> list[Any]:
    """Read by the queryset itself."""
    return list(statement._build(**values))


def _first_behind(statement: Select[Any], lock: Select[Any], **values: Any) -> Any:
    select(lock, **{name: values[name] for name in lock.places})
    return next(iter(select(statement, **values)), None)


def update(statement: Update, **values: Any) -> int:
    """Update by the queryset itself."""
    queryset, changes = statement._build(**values)
    return queryset.update(**changes)


def _update_each(statement: Update, many: Sequence[dict[str, Any]]) -> int:
    return sum(update(statement, **values) for values in many)


def _insert_one(_statement: Insert[Any], row: Any) -> Any:
    row.save(force_insert=True)
    return row


def _insert_many(statement: Insert[Any], rows: Sequence[Any]) -> None:
    model = statement._model
    names = [field.attname for field in statement._fields]
    made = [
        row if isinstance(row, model) else model(**{name: getattr(row, name) for name in names})
        for row in rows
    ]
    model._default_manager.bulk_create(made)


_SLOWLY: list[tuple[type, str, Callable[..., Any]]] = [
    (Select, "all", select),
    (Select, "first_behind", _first_behind),
    (Update, "run", update),
    (Update, "run_each", _update_each),
    (Insert, "one", _insert_one),
    (Insert, "many", _insert_many),
]


def facts() -> list[str]:
    """Return all rows, each as text, without what is different each time: moments, keys and how long things took."""
    known: dict[str, str] = {}

    def ordinal(match: "re.Match[str]") -> str:
        return known.setdefault(match[0], f"id {len(known)}")

    return [
        _MOMENT.sub("then", _UUID.sub(ordinal, json.dumps(row, default=str, sort_keys=True)))
        for model in sorted(_MODELS, key=lambda model: model is not Turn)
        for row in _facts_of(model)
    ]


_MODELS = [
    model
    for app in ("governance", "turns")
    for model in apps.get_app_config(app).get_models()
    if not model._meta.proxy
]
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d)?")
_VARY = ("id", "duration_ms", "settled_ms")
_ORDERS: dict[Any, str] = {Turn: "number", Process: "started_at"}


def _facts_of(model: Any) -> Iterator[Any]:
    made = [
        field.attname
        for field in model._meta.concrete_fields
        if isinstance(getattr(field, "target_field", field), AutoField)
    ]
    for row in model._base_manager.order_by(_ORDERS.get(model, "pk")).values():
        kept = {name: value for name, value in row.items() if name not in made}
        yield model._meta.label, _without_times(kept)


def _without_times(value: Any) -> Any:
    match value:
        case dict():
            return {
                name: "some" if inner and name in _VARY else _without_times(inner)
                for name, inner in value.items()
            }
        case list():
            return [_without_times(inner) for inner in value]
    return value
