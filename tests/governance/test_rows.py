"""New rows: what the constructor of a model makes of the same values."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from django.db import models
from django.db.models import signals

from governance.models import ToolCall
from governance.rows import NewRow
from turns.models import Message, Turn

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
CASES: list[tuple[type[models.Model], dict[str, Any]]] = [
    (ToolCall, {"call_id": "a", "group": "b", "requested_at": MOMENT, "input": {"number": 1}}),
    (Message, {"turn_id": uuid4(), "conversation_id": uuid4(), "position": 1, "role": "user"}),
    (Turn, {"id": uuid4(), "user_message": "Hello", "number": 3, "parent_id": uuid4()}),
]


def kept(row: models.Model) -> dict[str, Any]:
    return {name: value for name, value in vars(row).items() if name != "_state"}


@pytest.mark.parametrize(("model", "values"), CASES)
def test_a_new_row_is_what_its_constructor_makes(model: type[models.Model], values: dict[str, Any]):
    made = NewRow(model)(**values)
    assert kept(made) == kept(model(**values))
    assert made._state.adding
    assert made._state.db is None


def test_two_rows_share_no_list():
    new_call = NewRow(ToolCall)
    one, two = new_call(call_id="a"), new_call(call_id="b")
    one.images.append({"id": "x"})
    assert two.images == []


def test_who_listens_to_new_rows_is_told():
    told: list[object] = []

    def listen(instance: object, **_: Any) -> None:
        told.append(instance)

    signals.post_init.connect(listen, sender=ToolCall)
    try:
        made = NewRow(ToolCall)(call_id="a")
    finally:
        signals.post_init.disconnect(listen, sender=ToolCall)
    assert told == [made]
