"""The overview of the admin: its figures are those of the rows, and each leads to its list. It costs the same however much there is."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from governance import runtime, services
from governance.admin.readonly import CappedPaginator
from governance.models import McpServer
from tests.turns.row_factory import RowFactory, make_process
from turns.models import CancelRequest

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = reverse("admin:turns_overview")


def figures_of(client):
    page = client.get(PAGE)
    assert page.status_code == 200
    return {str(figure.label): figure for figure in page.context["figures"]}


def make_busy(person):
    """A site on which something of everything has happened."""
    factory = RowFactory(person)
    turn = factory.turn("running", owner=make_process(name="runner-1", abandoned=2))
    since = timezone.now() - timedelta(seconds=90)
    factory.call(turn, "asks", "awaiting_approval", requested_at=since)
    for number in range(3):
        spent = {"error_type": "timeout", "duration_ms": 5_000, "timeout_ms": 5_000}
        factory.call(turn, f"late-{number}", "timed_out", tool_name="wait", **spent)
    factory.turn("queued")
    factory.turn("timed_out")
    CancelRequest.objects.create(turn=turn, reason="user", source="api", requested_at=since)
    return turn


def test_each_figure_is_that_of_the_rows(admin_client, ada):
    runtime._policies.reload()
    services.save_tool_policy(tool_name="wait", values={"timeout_ms": 5_000}, by=None)
    make_busy(ada)
    make_process(name="runner-2", age=3_600)
    at = timezone.now()
    McpServer.objects.create(name="well", command="true", last_ok_at=at)
    McpServer.objects.create(name="ill", command="true", last_error="no", last_error_at=at)
    McpServer.objects.create(name="off", command="true", enabled=False, last_error_at=at)
    found = figures_of(admin_client)
    values = {label: figure.value for label, figure in found.items()}
    assert values == {
        "Turns that run": "1",
        "Calls that wait for a person": "1",
        "Calls of today that ran out of time": "3",
        "Turns of today that ran out of time": "1",
        "Cancels requested today": "1",
        "Tools near their limit": "1",
        "Processes": "2",
        "Database": "answers",
        "Channel layer": "answers",
        "MCP servers in use": "2",
    }
    assert [link.text for link in found["Tools near their limit"].links] == ["wait"]
    assert found["Turns that run"].note.startswith("1 wait for their turn")
    assert found["Calls that wait for a person"].note.startswith("the oldest for 1")
    assert found["Processes"].note == "1 do not answer, 2 bodies of calls are left behind"
    assert found["MCP servers in use"].note == "1 not well"
    lists = {
        "Turns that run": 2,
        "Calls that wait for a person": 1,
        "Calls of today that ran out of time": 3,
        "Turns of today that ran out of time": 1,
        "Cancels requested today": 1,
        "Processes": 2,
    }
    for label, count in lists.items():
        page = admin_client.get(found[label].address)
        shown = page.context.get("page") or page.context["cl"]
        assert (page.status_code, shown.paginator.count) == (200, count), label
    near = admin_client.get(found["Tools near their limit"].address)
    assert [row.name for row in near.context["rows"]] == ["wait"]


def test_a_count_ends_at_its_bound(admin_client, ada, monkeypatch):
    monkeypatch.setattr(CappedPaginator, "most", 2)
    make_busy(ada)
    assert figures_of(admin_client)["Calls of today that ran out of time"].value == "more than 2"


def test_it_costs_the_same_however_much_there_is(admin_client, ada, eve):
    make_busy(ada)
    figures_of(admin_client)
    with CaptureQueriesContext(connection) as few:
        figures_of(admin_client)
    for _ in range(5):
        make_busy(eve)
    with CaptureQueriesContext(connection) as many:
        figures_of(admin_client)
    assert len(many) == len(few)


def test_it_needs_the_permission_to_see_turns_and_links_only_where_one_may_go(client, ada, eve):
    make_busy(ada)
    eve.is_staff = True
    eve.save()
    client.force_login(eve)
    index = reverse("admin:index")
    assert client.get(PAGE).status_code == 403
    assert PAGE not in client.get(index).content.decode()
    eve.user_permissions.add(Permission.objects.get(codename="view_turn"))
    assert PAGE in client.get(index).content.decode()
    found = figures_of(client).values()
    addresses = {figure.address.partition("?")[0] for figure in found} - {""}
    assert addresses == {
        reverse("admin:turns_runningturn_changelist"),
        reverse("admin:turns_turn_changelist"),
        reverse("webchat:readyz"),
    }
    assert not any(figure.links for figure in found)
