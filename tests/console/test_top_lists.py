"""Who and what has most timeouts and cancels: each count is the rows that its name leads to."""

import re
from html import unescape

import pytest
from django.urls import reverse
from django.utils import timezone

from tests.console.visitor import Page
from tests.staff import make_staff, sign_in
from tests.turns.row_factory import RowFactory
from turns.models import CancelRequest

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "admin:governance_top_lists"


@pytest.fixture
def history(ada, eve):
    """Twelve tools; ada's agent has three timeouts, two cancels and 36 tokens, eve's one, one and none."""
    for owner, agent, timeouts, cancels in ((ada, "planner", 3, 2), (eve, "clerk", 1, 1)):
        factory = RowFactory(owner)
        for number in range(timeouts):
            usage = {"input_tokens": 10, "output_tokens": 2} if owner == ada else {}
            turn = factory.turn(agent=agent, usage=usage)
            factory.call(
                turn, f"t{number}", "timed_out", error_type="timeout", tool_name="slow tool"
            )
            factory.call(turn, f"o{number}", tool_name="never late")
        for number in range(cancels):
            turn = factory.turn("cancelled", agent=agent)
            factory.call(
                turn, f"c{number}", "cancelled", error_type="cancelled", tool_name="stopped"
            )
            CancelRequest.objects.create(
                turn=turn, reason="user", source="button", by_name="x", requested_at=timezone.now()
            )
    for number in range(12):
        factory.call(
            turn, f"m{number}", "timed_out", error_type="timeout", tool_name=f"tool{number:02}"
        )


def tables(client):
    """Return the tables of the page: title → name → count and address."""
    html = client.get(reverse(PAGE)).content.decode().partition('id="content-main"')[2]
    line = re.compile(r'<a href="([^"]+)">([^<]+)</a></td><td class="number">(\d+)<')
    return {
        title: {name: (int(count), unescape(link)) for link, name, count in line.findall(body)}
        for title, body in re.findall(r"<caption>(.*?)</caption>(.*?)</table>", html, re.DOTALL)
    }


def test_each_name_leads_to_as_many_rows_as_it_counts(admin_client, history):
    shown = tables(admin_client)
    counts = {
        title: {name: count for name, (count, _link) in lines.items()}
        for title, lines in shown.items()
    }
    assert counts["Timeouts by user"] == {"ada": 3, "eve": 13}
    assert counts["Timeouts by agent"] == {"planner": 3, "clerk": 13}
    assert len(counts["Timeouts by tool"]) == 10
    assert next(iter(counts["Timeouts by tool"].items())) == ("slow tool", 4)
    assert counts["Cancels by user"] == {"ada": 2, "eve": 1}
    assert counts["Cancels by agent"] == {"planner": 2, "clerk": 1}
    assert counts["Cancelled calls by tool"] == {"stopped": 3}
    assert counts["Tokens by user"] == {"ada": 36}
    assert counts["Tokens by agent"] == {"planner": 36}
    for title in ("Tokens by user", "Tokens by agent"):
        for _count, link in shown.pop(title).values():
            assert " 5 turns" in Page(admin_client.get(link).content.decode()).text
    for title, lines in shown.items():
        for name, (count, link) in lines.items():
            text = Page(admin_client.get(link).content.decode()).text
            noun = "cancel request" if title.startswith("Cancels") else "tool call"
            assert f" {count} {noun}" in text, (title, name)


def test_a_table_needs_the_rights_of_its_rows(history, eve):
    client = sign_in(make_staff(eve, "view_toolcall"))
    assert set(tables(client)) == {"Timeouts by tool", "Cancelled calls by tool"}
