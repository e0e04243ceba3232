"""Binding: what the database gets is what a field of Django would have given it, whatever the value."""

import warnings
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.db import connection, models
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy

from governance.binding import binder_of, is_stored_as_it_is
from governance.core.calls import CallStatus

MOMENT = datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=UTC)
VALUES: list[Any] = [
    None,
    "",
    "text",
    CallStatus.RUNNING,
    gettext_lazy("Yes"),
    SimpleLazyObject(lambda: "lazy"),
    0,
    7,
    -(2**40),
    True,
    1.5,
    MOMENT,
    MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30))),
    MOMENT.replace(tzinfo=None),
    "2026-02-03T04:05:06Z",
    uuid4(),
    str(uuid4()),
    {"a": [1, None, "ü"], "b": {"c": True}},
    [1, {"a": 2}],
    [],
    {},
    models.Value(None, models.JSONField()),
]
FIELDS = [
    field
    for app in ("governance", "turns")
    for model in apps.get_app_config(app).get_models()
    for field in model._meta.concrete_fields
]


class Shouting(models.CharField):  # type: ignore[type-arg]
    """A field that prepares values in its own way."""

    def get_prep_value(self, value: Any) -> Any:
        """Return it in capitals."""
        return str(value).upper()


def bound(prepare: Any, value: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = prepare(value)
    except Exception as error:  # noqa: BLE001 - any error has to be the same
        return type(error), str(error)
    if isinstance(made, int) and not isinstance(made, bool):
        made = int(
            made
        )  # how wide it is counts only apart from a statement, which is not the way here
    # A driver's own wrapper has no equality.
    return (type(made), repr(made)) if not isinstance(made, models.Value) else made


@pytest.mark.parametrize("field", FIELDS, ids=str)
@pytest.mark.parametrize("for_save", [True, False])
def test_a_value_is_bound_as_its_field_would(field: Any, for_save: bool):
    own = field.get_db_prep_save if for_save else field.get_db_prep_value
    binder = binder_of(field, for_save=for_save, database=connection.copy())
    for value in VALUES:
        expected = bound(lambda each: own(each, connection=connection), value)
        assert bound(binder, value) == expected, value


def test_the_fields_of_hot_rows_take_the_short_way():
    """Else all of them could go the long way, and nobody would see it but by the clock."""
    turn = apps.get_model("turns", "Turn")
    ways = {
        field.name: binder_of(field, for_save=True, database=connection.copy())
        for field in turn._meta.concrete_fields
    }
    assert [name for name, binder in ways.items() if not binder.by_type] == []


def test_a_field_that_prepares_values_itself_goes_its_own_way():
    field = Shouting(max_length=20)
    assert binder_of(field, for_save=True, database=connection.copy())("loud") == "LOUD"


@pytest.mark.parametrize(
    ("field", "is_as_it_is"),
    [
        (models.DateTimeField(), True),
        (models.DateTimeField(auto_now=True), False),
        (models.DateTimeField(auto_now_add=True), False),
        (models.CharField(), True),
        (models.FileField(), False),
    ],
)
def test_which_fields_are_stored_as_they_are(field: Any, is_as_it_is: bool):
    assert is_stored_as_it_is(field) is is_as_it_is
