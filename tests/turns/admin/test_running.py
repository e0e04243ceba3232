"""The admin's page of what runs now: everybody's turns and calls, one query for each kind, and buttons that end them."""

from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tests.turns.row_factory import RowFactory, make_process
from turns.models import CancelRequest

pytestmark = pytest.mark.django_db(transaction=True)

URL = reverse("admin:turns_runningturn_changelist")


@pytest.fixture
def admin_user(transactional_db):
    return get_user_model().objects.create_superuser("boss", "boss@example.org", "pw")


@pytest.fixture
def admin_client(admin_user):
    admin_client = Client()
    admin_client.force_login(admin_user)
    return admin_client


def run(person, *, process=None):
    """Plant a turn that runs since a minute, with one call of each kind that is not over, and one that is."""
    factory = RowFactory(person)
    factory.conversation.title = "Holes <b>and</b> gold"
    factory.conversation.save()
    since = timezone.now() - timedelta(seconds=60)
    turn = factory.turn(
        "running", started_at=since, turn_timeout_ms=600_000, agent="digger", owner=process
    )
    factory.call(turn, "over")
    factory.call(turn, "runs", "running", tool_name="dig", started_at=since, timeout_ms=90_000)
    factory.call(turn, "waits", "pending", tool_name="carry")
    return turn


def page(admin_client: Client, **query) -> str:
    response = admin_client.get(URL, query)
    assert response.status_code == 200
    return response.content.decode().replace("\u00a0", " ")


def test_it_tells_who_where_since_when_and_what_is_left(admin_client, ada):
    run(ada, process=make_process())
    RowFactory(ada).turn("completed", agent="gone-agent")
    html = page(admin_client)
    assert "Running now, as of" in html
    for text in ("digger", "ada", "elsewhere:1", "waits to start", "Holes &lt;b&gt;and"):
        assert text in html, text
    assert "1 min" in html
    assert "8 min 5" in html  # of ten minutes one has passed, and some seconds
    assert "gone-agent" not in html
    assert "over" not in html.split("result_list")[1].split("dig")[0]


@pytest.mark.parametrize(
    ("waits_for", "words"),
    [
        ({"kind": "call", "tool_id": "a", "tool_name": "dig"}, "waits until dig has ended"),
        (
            {"kind": "scope", "tool_id": "", "tool_name": ""},
            "waits: its conversation runs as many calls as it may",
        ),
        (
            {"kind": "slot", "tool_id": "", "tool_name": ""},
            "waits for a free place on the server",
        ),
    ],
)
def test_a_call_that_waits_says_for_what(admin_client, ada, waits_for, words):
    factory = RowFactory(ada)
    turn = factory.turn("running")
    factory.call(turn, "waits", "pending", tool_name="carry", waits_for=waits_for)
    assert words in page(admin_client)


def test_what_nothing_can_end_is_only_waited_for_no_more(admin_client, ada):
    factory = RowFactory(ada)
    turn = factory.turn("running")
    factory.call(turn, "stuck", "running", tool_name="dig", isolation="thread")
    factory.call(turn, "waits", "pending", tool_name="carry", isolation="thread")
    html = page(admin_client)
    assert "Stop waiting for this call of dig" in html
    assert "Cancel this call of carry" in html


def test_a_turn_that_waits_for_a_person_says_so_and_its_clock_stands_still(admin_client, ada):
    factory = RowFactory(ada)
    turn = factory.turn("running", turn_timeout_ms=600_000)
    factory.call(turn, "asks", "awaiting_approval", tool_name="exec")
    html = page(admin_client)
    assert "waits for a person" in html
    assert "stands still" in html


def test_a_button_ends_one_call_and_another_one_the_turn(admin_client, ada):
    turn = run(ada)
    said = admin_client.post(URL, {"end": f"{turn.pk}:runs"}, follow=True).content.decode()
    assert "1 is being ended." in said
    request = CancelRequest.objects.get(turn=turn)
    assert (request.tool_id, request.source, request.by_name) == ("runs", "admin", "boss")
    admin_client.post(URL, {"end": str(turn.pk)})
    turn.refresh_from_db()
    assert turn.status == "cancelling"
    said = admin_client.post(URL, {"end": "no such turn"}, follow=True).content.decode()
    assert "had ended already" in said


def test_who_may_only_look_has_no_buttons_and_ends_nothing(ada):
    turn = run(ada)
    viewer = get_user_model().objects.create_user("eve", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_turn"))
    admin_client = Client()
    admin_client.force_login(viewer)
    assert 'name="end"' not in page(admin_client)
    said = admin_client.post(URL, {"end": str(turn.pk)}, follow=True).content.decode()
    assert "You may not cancel turns." in said
    assert not CancelRequest.objects.exists()
    viewer.user_permissions.clear()
    assert admin_client.get(URL).status_code == 403


def test_the_front_page_leads_to_it(admin_client):
    html = admin_client.get(reverse("admin:index")).content.decode()
    assert f'href="{URL}"' in html
    assert "Running now" in html


def test_it_asks_again_by_itself_only_where_that_was_chosen(admin_client, ada):
    run(ada)
    assert "Refresh" not in admin_client.get(URL)
    assert admin_client.get(URL, {"refresh": "5"})["Refresh"] == "5"
    assert "Refresh" not in admin_client.get(URL, {"refresh": "0"})


def test_more_turns_are_not_more_queries(admin_client, ada):
    def queries() -> int:
        with CaptureQueriesContext(connection) as made:
            page(admin_client)
        return len(made)

    run(ada)
    few = queries()
    for _ in range(5):
        run(ada)
    assert queries() == few
