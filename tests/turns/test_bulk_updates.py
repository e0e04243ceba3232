"""Updates of many rows at once: each row has its own values, and only the fields that were named."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser
from django.utils import timezone

from governance.bulk_updates import update_each
from tests.turns.row_factory import RowFactory
from turns.core.turns import TurnStatus
from turns.models import CancelRequest

pytestmark = pytest.mark.django_db

NOW = timezone.now()
# Texts, a moment that may be missing, numbers, a foreign key, a list: what every column of these rows may hold.
WRITTEN: tuple[dict[str, Any], ...] = (
    {"note": "so", "settled_at": NOW, "settled_ms": 12, "running_tools": ["a", "ü"], "by_id": None},
    {"note": "", "settled_at": None, "settled_ms": None, "running_tools": [], "by_id": None},
    {
        "note": "'%s'",
        "settled_at": NOW - timedelta(days=1),
        "settled_ms": 0,
        "running_tools": ["%"],
    },
)


@pytest.fixture
def requests(ada: AbstractUser) -> list[CancelRequest]:
    turn = RowFactory(ada).turn(TurnStatus.CANCELLED)
    return [
        CancelRequest.objects.create(
            turn=turn, tool_id=str(number), source="button", mode="now", requested_at=NOW
        )
        for number in range(len(WRITTEN))
    ]


def test_each_row_gets_its_own_values(requests: list[CancelRequest], ada: AbstractUser) -> None:
    given = [{"by_id": ada.pk, **values} for values in WRITTEN]
    for request, values in zip(requests, given, strict=True):
        vars(request).update(values)
    update_each(requests, ["note", "settled_at", "settled_ms", "running_tools", "by"])
    assert list(CancelRequest.objects.order_by("pk").values(*given[0])) == given


def test_other_fields_and_other_rows_stay(requests: list[CancelRequest]) -> None:
    first = requests[0]
    first.note, first.source = "new", "typed"
    update_each([first], ["note"])
    first.refresh_from_db()
    assert (first.note, first.source) == ("new", "button")
    assert {other.note for other in CancelRequest.objects.exclude(pk=first.pk)} == {""}


def test_without_rows_the_database_is_not_asked(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        update_each([], ["note"])
