"""The log on the page of a turn. Every event can be reached, and a long log costs no more statements."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from console import event_log
from tests.turns.row_factory import RowFactory
from turns.models import Event

pytestmark = pytest.mark.django_db(transaction=True)


def plant(turn, numbers) -> None:
    Event.objects.bulk_create(
        Event(
            conversation_id=turn.conversation_id,
            turn=turn,
            seq=number,
            type="tool_progress",
            payload={"mark": f"event-{number}."},
            at=timezone.now(),
        )
        for number in numbers
    )


def numbers_on(html: str) -> list[int]:
    return [int(number) for number in re.findall(r"event-(\d+)\.", html)]


def link(html: str, words: str) -> str:
    found = re.search(rf'href="([^"#]*)#event-log">{words}', html)
    return found[1].replace("&amp;", "&") if found else ""


def test_all_events_of_a_long_log_are_reached_there_and_back(admin_client, ada):
    factory = RowFactory(ada)
    turn, other = factory.turn(), factory.turn()
    mine = range(3, 2 * (2 * event_log.SHOWN + 7), 2)  # the other turn has the numbers between
    plant(turn, mine)
    plant(other, range(4, 40, 2))
    address = reverse("admin:turns_turn_change", args=[turn.pk])
    query, there, pages = "?_changelist_filters=when%3Dany", [], []
    while query:
        html = admin_client.get(f"{address}{query}").content.decode()
        there.append(numbers_on(html))
        pages.append(html)
        query = link(html, "Later events")
    assert [number for page in there for number in page] == list(mine)
    assert max(map(len, there)) == event_log.SHOWN
    assert len(there) == 3
    back = [link(html, "Earlier events") for html in pages]
    assert back[0] == ""
    shown = [
        numbers_on(admin_client.get(f"{address}{query}").content.decode()) for query in back[1:]
    ]
    assert shown == there[:2]
    assert all("_changelist_filters=when%3Dany" in query for query in back[1:])
    assert "aligned collapse" in pages[0]
    assert "aligned collapse" not in pages[1]  # what one asked for is open


@pytest.mark.parametrize("after", ["x", "-1", "²", "9" * 40, "", "999999999999999999"])
def test_an_address_may_name_any_number(admin_client, ada, after):
    turn = RowFactory(ada).turn()
    plant(turn, [1])
    address = reverse("admin:turns_turn_change", args=[turn.pk])
    assert admin_client.get(address, {event_log.AFTER: after}).status_code == 200


def test_a_longer_log_is_not_more_statements(admin_client, ada):
    turn = RowFactory(ada).turn()
    address = reverse("admin:turns_turn_change", args=[turn.pk])

    def statements(**query) -> int:
        with CaptureQueriesContext(connection) as made:
            assert admin_client.get(address, query).status_code == 200
        return len(made)

    plant(turn, [1])
    statements()  # content types are known from now on
    few = statements()
    plant(turn, range(2, 3 * event_log.SHOWN))
    assert statements() == few
    assert (
        statements(**{event_log.AFTER: str(event_log.SHOWN)}) == few + 1
    )  # where the page before it begins
