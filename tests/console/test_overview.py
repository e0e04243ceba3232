"""The overview: the first page of the admin. Its figures are those of the rows, and each leads to the rows that it counts."""

import threading
from datetime import timedelta

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from governance import runtime, services
from governance.models import McpServer
from tests.staff import staff_client
from tests.support import PATIENCE
from tests.turns.row_factory import RowFactory, make_process, make_question
from turns.models import CancelRequest, Process, Turn

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = reverse("admin:index")


def context_of(client):
    page = client.get(PAGE)
    assert page.status_code == 200
    return page.context


def figures_of(client):
    return {figure.name: figure for figure in context_of(client)["figures"]}


def checks_of(client):
    return {str(check.label): check for check in context_of(client)["checks"]}


def ago(**span):
    return timezone.now() - timedelta(**span)


def make_busy(person):
    """A site on which something of everything has happened: in the last hour, in the last day, and before it."""
    factory = RowFactory(person)
    turn = factory.turn("running", owner=make_process(name="runner-1", abandoned=2))
    asked = factory.call(turn, "asks", "awaiting_approval", requested_at=ago(seconds=90))
    make_question(turn, asked.call_id, requested_at=asked.requested_at)
    for number, at in enumerate((ago(minutes=5), ago(hours=3), ago(hours=23), ago(hours=25))):
        spent = {"error_type": "timeout", "duration_ms": 5_000, "timeout_ms": 5_000}
        factory.call(
            turn, f"late-{number}", "timed_out", tool_name="wait", requested_at=at, **spent
        )
        factory.call(
            turn, f"lost-{number}", "repaired", disposition="indeterminate", requested_at=at
        )
        factory.call(turn, f"cut-{number}", "cancelled", effects="cut", requested_at=at)
        for status in ("timed_out", "interrupted", "failed"):
            factory.turn(status, queued_at=at)
        about = {"turn": turn, "tool_id": f"{number}", "reason": "user", "source": "api"}
        CancelRequest.objects.create(requested_at=at, **about)
    factory.turn("queued")
    return turn


def test_each_number_is_that_of_the_rows_and_leads_to_just_these(admin_client, ada):
    make_busy(ada)
    figures = figures_of(admin_client)
    numbers = {name: [count.value for count in figure.counts] for name, figure in figures.items()}
    assert numbers == {
        "turns": [2, 5, 11],
        "waiting": [1, 1, 1],
        "badly": [2, 6],
        "timeouts": [1, 3],
        "unknown": [1, 3],
        "cancels": [1, 3],
    }
    assert figures["turns"].note.startswith("1 waiting in the queue")
    assert figures["waiting"].note.startswith("the oldest for 1")
    parts = {name: [link.text for link in figure.links] for name, figure in figures.items()}
    assert parts["badly"] == ["interrupted 3", "failed 3"]
    assert parts["timeouts"] == ["wait 3", "whole turns 3", "by user, agent and tool"]
    assert parts["unknown"] == ["stopped midway, with side effects: 3"]
    lists = [
        (count.address, count.value)
        for figure in figures.values()
        for count in figure.counts
        if str(count.label) != "now" or figure.name != "turns"
    ]
    lists += [
        (link.address, int(link.text.split()[-1]))
        for figure in figures.values()
        for link in figure.links
        if link.address != reverse("admin:governance_top_lists")
    ]
    for address, number in lists:
        page = admin_client.get(address)
        assert (page.status_code, page.context["cl"].result_count) == (200, number), address


def test_the_hours_are_drawn_oldest_first(admin_client, ada):
    make_busy(ada)
    series = figures_of(admin_client)["timeouts"].series
    assert series.counts == (1, *[0] * 19, 1, 0, 0, 1)
    assert [bar["x"] for bar in series.bars] == [0, 100, 115]


def test_a_dead_process_is_named_with_the_turns_that_it_lost(admin_client, ada):
    factory = RowFactory(ada)
    make_process(name="runner-1")
    make_process(name="runner-2", age=3_600)
    make_process(name="runner-3", ended_at=ago(hours=2), ending="stopped")
    dead = make_process(name="runner-4", ended_at=ago(hours=1), ending="died", lost_turns=2)
    make_process(name="runner-5", ended_at=ago(hours=30), ending="died")
    Process.objects.filter(name="runner-1").update(draining_at=timezone.now())
    lost, *_others = [
        factory.turn(status, owner=dead) for status in ("interrupted", "interrupted", "completed")
    ]
    Turn.objects.filter(pk=lost.pk).update(queued_at=ago(hours=50))  # before the process started
    context = context_of(admin_client)
    lines = {line.process.text: line for line in context["processes"]}
    assert {name: str(line.status.words).partition(":")[0] for name, line in lines.items()} == {
        "runner-4": "died",
        "runner-2": "stale",
        "runner-1": "draining",
    }
    assert context["process_words"] == "1 died, 1 stale, 1 draining"
    link = lines["runner-4"].lost_turns
    assert link.text == "2"
    assert admin_client.get(link.address).context["cl"].result_count == 2


def test_what_the_site_depends_on_says_how_it_is(admin_client, ada):
    runtime._policies.reload()
    services.save_tool_policy(tool_name="wait", values={"timeout_ms": 5_000}, by=None)
    make_busy(ada)
    at = timezone.now()
    McpServer.objects.create(name="well", command="true", last_ok_at=at)
    McpServer.objects.create(name="ill", command="true", last_error="no", last_error_at=at)
    McpServer.objects.create(name="off", command="true", enabled=False, last_error_at=at)
    checks = checks_of(admin_client)
    assert [link.text for link in checks["Tools near the limit"].links] == ["wait"]
    near = admin_client.get(checks["Tools near the limit"].address)
    assert [row.name for row in near.context["rows"]] == ["wait"]
    assert checks["MCP servers"].status.words == "2 in use, 1 unhealthy"
    assert checks["Database"].status.words == "responding"
    assert checks["Channel layer"].status.words == "responding"


def test_a_fresh_site_says_what_to_do_first(admin_client, ada):
    steps = [link.address for link in context_of(admin_client)["first_steps"]]
    assert reverse("webchat:conversations") in steps
    assert "No turns yet" in admin_client.get(PAGE).text
    for address in steps:
        assert admin_client.get(address).status_code == 200
    RowFactory(ada).turn()
    assert context_of(admin_client)["first_steps"] == []


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
    assert "figures" not in client.get(PAGE).context
    eve.user_permissions.add(Permission.objects.get(codename="view_turn"))
    context = context_of(client)
    addresses = {count.address for figure in context["figures"] for count in figure.counts}
    addresses |= {link.address for figure in context["figures"] for link in figure.links}
    addresses |= {check.address for check in context["checks"]}
    addresses |= {line.process.address for line in context["processes"]}
    assert {address.partition("?")[0] for address in addresses} - {""} == {
        reverse("admin:turns_runningturn_changelist"),
        reverse("admin:turns_turn_changelist"),
        reverse("webchat:readyz"),
    }
    assert not any(check.links for check in context["checks"])


MENU = {
    "Now": ["Overview", "Running now", "Approvals", "Processes"],
    "Limits": ["Tool limits", "Default limits", "Disconnect policy"],
    "Audit": ["Activity", "Turns", "Tool calls", "Cancelled turns", "Conversations", "Repairs"],
    "Set-up": ["Agents", "MCP servers", "API tokens"],
}


def menu_of(client):
    menu = client.get(reverse("admin:turns_process_changelist")).context["available_apps"]
    return {str(group["name"]): [entry["name"] for entry in group["models"]] for group in menu}


def test_the_menu_is_sorted_by_task_and_short(admin_client):
    menu = menu_of(admin_client)
    assert {name: entries for name, entries in menu.items() if name in MENU} == MENU
    assert sum(map(len, MENU.values())) <= 16


def test_the_menu_has_what_its_reader_may_see(admin_client):
    menu = menu_of(staff_client("tom", "view_process", "view_repair"))
    assert menu == {"Now": ["Processes"], "Audit": ["Repairs"]}


@pytest.mark.parametrize("app", ["governance", "turns", "webchat"])
def test_lists_that_the_menu_leaves_out_are_on_the_page_of_their_app(admin_client, app):
    page = admin_client.get(reverse("admin:app_list", args=[app]))
    listed = {model["object_name"] for model in page.context["app_list"][0]["models"]}
    registered = [model for model in admin.site._registry if model._meta.app_label == app]
    assert listed == {model.__name__ for model in registered}


def test_a_database_that_hangs_at_the_probe_does_not_hold_up_the_page(
    admin_client, settings, monkeypatch
):
    answers, heard = threading.Event(), []
    execute = CursorWrapper._execute

    def hang(cursor, sql, *arguments):
        if sql == "SELECT 1":
            heard.append(answers.wait(PATIENCE))
        return execute(cursor, sql, *arguments)

    monkeypatch.setattr(CursorWrapper, "_execute", hang)
    settings.WEBCHAT_READY_TIMEOUT = 0.05
    try:
        database = checks_of(admin_client)["Database"]
        assert database.status.words == "not responding in time"
        assert heard == []  # the page was there before
    finally:
        answers.set()
