"""The activity: one list of who did what, when, from what to what and why, whatever it was."""

import json
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from governance import CancelSource, activity, services
from governance.mcp_servers import edits as server_edits
from governance.models import Activity
from tests.console.buttons import BUTTONS
from tests.console.planted import SECRET
from tests.console.visitor import plain
from tests.staff import make_staff, sign_in
from tests.turns.row_factory import RowFactory
from turns.agents import edits as agent_edits
from turns.endings import deletions
from turns.presence import disconnects
from webchat import api_tokens

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "admin:governance_activity_changelist"


@pytest.fixture
def olga(db):
    return get_user_model().objects.create_user("olga", is_staff=True, is_superuser=True)


@pytest.fixture
def pressed(planted, olga):
    """Return a function that presses a button of the admin as olga."""
    client = sign_in(olga)
    buttons = {button.name: button for button in BUTTONS}
    Activity.objects.all().delete()

    def press(name):
        assert buttons[name].press(client, planted).status_code == 302

    return press


def text_of(client, **asked):
    answer = client.get(reverse(LIST), asked)
    return plain(" ".join(answer.content.decode().replace("\xa0", " ").split()))


def rows():
    """What is stored: kind, action, subject, who, old and new, why, note."""
    names = ("kind", "action", "subject", "by_name", "changes", "why", "note")
    return list(Activity.objects.order_by("pk").values_list(*names))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("save", ("limits", "change", "exec", "olga", {"timeout_ms": [30_000, 20_000]}, "", "")),
        ("add_agent", ("agent", "add", "librarian", "olga", {}, "", "")),
        ("disconnects", (
            "disconnects", "change", "", "olga",
            {"policy": ["cancel_after_grace", "detach"], "unattended_limit_ms": [3_600_000, 7_200_000]}, "", "",
        )),
        ("cancel", (
            "cancel", "cancel", "quick", "olga", {"reason": "admin", "source": "admin", "mode": "now"},
            "wrong customer", "",
        )),
        ("deny", ("decision", "deny", "exec", "olga", {}, "", "not here")),
        ("allow", ("decision", "approve", "exec", "olga", {}, "", "")),
        ("extend", ("extension", "change", "quick", "olga", {"timeout_ms": [90_000, 120_000]}, "", "")),
    ],
)  # fmt: skip
def test_what_staff_does_by_a_button_is_one_row(pressed, name, wanted):
    pressed(name)
    assert rows() == [wanted]


def test_edits_deletions_exports_and_sign_ins_are_rows_too(ada, olga):
    place = RowFactory(ada)
    agent_edits.save_agent(name="planner", values={"instructions": SECRET}, by=olga)
    server_edits.save_server(
        pk=None, values={"name": "files", "command": SECRET, "max_running": 2}, by=olga
    )
    disconnects.save({"grace_ms": 5_000}, by=olga)
    _token, _words = api_tokens.issue(user=ada, name="nightly", by=ada)
    deletions.hide(place.id, ada, CancelSource.BUTTON)
    client = sign_in(olga)
    client.get(reverse("admin:turns_turn_export", args=["csv"])).getvalue()
    sign_in(ada)
    done = [(kind, action, by_name) for kind, action, _subject, by_name, *_ in rows()]
    assert done == [
        ("agent", "add", "olga"),
        ("mcp_server", "add", "olga"),
        ("disconnects", "change", "olga"),
        ("token", "add", "ada"),
        ("deletion", "delete", "ada"),
        ("sign_in", "sign_in", "olga"),
        ("export", "export", "olga"),
    ]
    assert SECRET not in str(rows())
    page = text_of(client)
    for words in (
        "files",
        "command: changed",
        "grace period: 30 s → 5 s",
        "nightly",
        "format: CSV",
    ):
        assert words in page


def test_it_is_found_by_name_and_filtered_by_person_kind_and_time(admin_client, olga, ada):
    services.save_tool_policy(
        tool_name="exec", values={"timeout_ms": 30_000}, by=olga, reason="slow"
    )
    services.save_tool_policy(tool_name="web_fetch", values={"timeout_ms": 1_000}, by=ada)
    old = timezone.now() - timedelta(days=3)
    Activity.objects.filter(subject="web_fetch").update(at=old)
    every, found = {"when": "any"}, "Activity: 1 entry"
    assert "exec" in text_of(admin_client, q="exec")
    assert "web_fetch" in text_of(admin_client, q="ada")
    for asked in (
        {"q": "web_fetch"}, {"q": "ada"}, {"person": "ada", **every}, {"person": "olga"}, {"person": "olga", "kind": "limits"},
    ):  # fmt: skip
        assert found in text_of(admin_client, **asked), asked
    assert "Activity: 0 entries" in text_of(admin_client, person="ada", when="24h")
    assert "Activity: 0 entries" in text_of(admin_client, person="ada", kind="token", **every)
    exported = admin_client.get(
        reverse("admin:governance_activity_export", args=["json"]), {"person": "olga"}
    )
    [row] = json.loads(exported.getvalue())
    assert (row["subject"], row["by_name"], row["why"]) == ("exec", "olga", "slow")
    assert row["changes"] == {"timeout_ms": [None, 30_000]}


def test_it_keeps_the_names_of_people_who_are_deleted(admin_client, olga):
    services.save_tool_policy(tool_name="exec", values={"timeout_ms": 30_000}, by=olga)
    olga.delete()
    assert "olga" in text_of(admin_client, q="olga")


def test_the_note_of_a_user_is_content_and_the_reason_of_staff_is_not(pressed, planted, eve):
    pressed("cancel")
    activity.record("cancel", "cancel", group=str(planted.pk), note=SECRET, by_name="ada")
    auditor = sign_in(make_staff(eve, "view_activity"))
    page = text_of(auditor, when="any")
    assert "wrong customer" in page
    assert SECRET not in page
    assert SECRET in text_of(sign_in(make_staff(eve, "view_activity", "view_content")), when="any")


def test_a_million_rows_are_read_along_an_index(admin_client, olga):
    """Each page reads as many rows as it shows: no filter sorts or scans the table."""
    Activity.objects.bulk_create(
        activity.act("limits", "change", subject="exec", by_name="olga") for _ in range(200)
    )
    for asked in ({}, {"q": "olga"}, {"person": "olga"}, {"kind": "limits", "when": "any"}):
        with CaptureQueriesContext(connection) as context:
            admin_client.get(reverse(LIST), asked)
        reads = [it["sql"] for it in context if 'FROM "governance_activity"' in it["sql"]]
        for sql in reads:
            with connection.cursor() as cursor:
                plan = str(cursor.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall())
            assert "TEMP B-TREE" not in plan, (asked, plan)
            assert "SCAN governance_activity'" not in plan, (asked, plan)
