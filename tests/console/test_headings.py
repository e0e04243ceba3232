"""The headings of the admin: a page says in a sentence what it is about, a list says how many rows it has and which."""

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from governance.models import Activity
from tests.turns.row_factory import RowFactory, make_process
from turns.models import CancelRequest

pytestmark = pytest.mark.django_db(transaction=True)

BY_ADA = {"ended_by_reason": "user", "ended_by_source": "button", "ended_by_name": "ada"}
BY_OLGA = {"ended_by_reason": "admin", "ended_by_source": "admin", "ended_by_name": "olga"}


def heading_of(client, row):
    opts = row._meta
    address = reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[row.pk])
    return str(client.get(address).context["title"]).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("status", "fields", "calls", "heading"),
    [
        ("queued", {}, {}, "ada’s turn is waiting to start"),
        (
            "cancelled",
            {"duration_ms": 0, "started_at": None},
            {},
            "ada’s turn ended before it started: cancelled",
        ),
        (
            "completed",
            {"duration_ms": 3_200},
            {"succeeded": ["a"]},
            "ada’s turn was completed after 3.2 s",
        ),
        (
            "cancelled",
            {"duration_ms": 1_200, **BY_ADA},
            {"cancelled": ["refund"], "not_started": ["wait"], "succeeded": ["lookup"]},
            "ada’s turn was cancelled after 1.2 s (by button): refund was interrupted, wait did not start",
        ),
        (
            "cancelled",
            {"duration_ms": 900, **BY_OLGA},
            {"cancelled": ["a", "b", "b", "c", "d", "e"]},
            "ada’s turn was cancelled after 900 ms (olga, in the admin):"
            " a, b, c and 2 more were interrupted",
        ),
        (
            "timed_out",
            {"duration_ms": 60_000},
            {"timed_out": ["a"], "abandoned": ["b"]},
            "ada’s turn timed out after 1 min: a timed out, b may still be running",
        ),
        (
            "interrupted",
            {"duration_ms": 60_000, "error_code": "lease_lost"},
            {"repaired": ["a", "b"]},
            "ada’s turn was interrupted after 1 min (lease lost): a and b were lost",
        ),
    ],
)
def test_a_turn_is_headed_by_what_became_of_it(admin_client, ada, status, fields, calls, heading):
    factory = RowFactory(ada)
    turn = factory.turn(status, **fields)
    at = timezone.now()
    for end, tools in calls.items():
        for number, tool in enumerate(tools):
            began = {} if end == "not_started" else {"started_at": at}
            factory.call(turn, f"{end}-{number}", end, tool_name=tool, **began)
    assert heading_of(admin_client, turn) == heading
    request = CancelRequest.objects.create(turn=turn, reason="user", source="api", requested_at=at)
    page = admin_client.get(reverse("admin:turns_cancelledturn_change", args=[request.pk]))
    assert str(page.context["title"]).replace("\u00a0", " ") == heading


@pytest.mark.parametrize(
    ("status", "fields", "heading"),
    [
        ("running", {}, "dig is running"),
        ("timed_out", {"duration_ms": 8_000}, "dig timed out after 8 s"),
        ("cancelled", {"duration_ms": 8_000, "started_at": timezone.now()}, "dig was interrupted after 8 s"),
        ("cancelled", {}, "dig did not start"),
        ("failed", {}, "dig: failed"),
        ("abandoned", {"duration_ms": 8_000}, "dig was abandoned after 8 s and may still be running"),
        (
            "abandoned",
            {"duration_ms": 8_000, "late_kind": "returned"},
            "dig was abandoned after 8 s and has since ended",
        ),
    ],
)  # fmt: skip
def test_a_call_is_headed_by_what_became_of_it(admin_client, ada, status, fields, heading):
    factory = RowFactory(ada)
    call = factory.call(factory.turn(), "c1", status, tool_name="dig", **fields)
    assert heading_of(admin_client, call) == heading


@pytest.mark.parametrize(
    ("fields", "heading"),
    [
        ({"outcome": "cancelled"}, "Cancel request for ada’s turn #1: cancelled"),
        ({"tool_id": "c1"}, "Cancel request for a call in ada’s turn #1: not yet"),
    ],
)
def test_a_cancel_request_is_headed_by_its_turn_and_outcome(admin_client, ada, fields, heading):
    turn = RowFactory(ada).turn("running")
    request = CancelRequest.objects.create(
        turn=turn, reason="user", source="api", requested_at=timezone.now(), **fields
    )
    assert heading_of(admin_client, request) == heading


@pytest.mark.parametrize(
    ("fields", "heading"),
    [
        ({"kind": "sign_in", "action": "sign_in", "subject": "olga"}, "olga · signed in"),
        (
            {"kind": "export", "action": "export", "subject": "governance.Approval"},
            "olga · exported · approvals",
        ),
        ({"kind": "agent", "action": "change", "subject": "clerk"}, "olga · changed · agent · clerk"),
    ],
)  # fmt: skip
def test_an_act_is_headed_by_who_did_what(admin_client, fields, heading):
    act = Activity.objects.create(by_name="olga", at=timezone.now(), **fields)
    assert heading_of(admin_client, act) == heading


def test_a_list_of_a_process_is_headed_by_its_name(admin_client):
    process = make_process(name="runner-1")
    address = reverse("admin:turns_turn_changelist")
    page = admin_client.get(address, {"process": str(process.pk), "when": "any"})
    assert page.context["title"] == "0 turns: runner-1"


def test_a_page_leaves_out_what_says_nothing(admin_client, ada):
    process = make_process(name="runner-1")
    address = reverse("admin:turns_process_change", args=[process.pk])
    page = admin_client.get(address).text
    assert heading_of(admin_client, process) == "runner-1, alive"
    assert "field-role" in page
    for empty in ("field-draining", "field-ended"):
        assert empty not in page


@pytest.mark.parametrize(
    ("asked", "heading"),
    [
        ({}, "3 tool calls in the last 24 hours"),
        ({"when": "1h"}, "2 tool calls in the last hour"),
        ({"when": "any"}, "4 tool calls"),
        ({"when_from": "2020-01-01"}, "4 tool calls in the selected time range"),
        ({"when": "1h", "happened": "timed_out"}, "1 tool call in the last hour: Timed out"),
        ({"status__exact": "succeeded", "q": "quick"}, "3 tool calls: “quick”, succeeded"),
    ],
)
def test_a_list_is_headed_by_a_figure(admin_client, ada, asked, heading):
    factory = RowFactory(ada)
    turn = factory.turn()
    for number, hours in enumerate((0, 5, 50)):
        factory.call(turn, f"{number}", requested_at=timezone.now() - timedelta(hours=hours))
    factory.call(turn, "late", "timed_out", error_type="timeout")
    page = admin_client.get(reverse("admin:governance_toolcall_changelist"), asked)
    assert page.context["title"] == heading


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "Nothing ran: every call of this turn had ended by then."),
        ({"late_after_ms": 36_500, "late_kind": "returned"}, "These calls ended later: dig."),
        ({"started_at": 5}, "These calls ended later: dig."),
        ({"disposition": "indeterminate"}, "It is not known when these calls ended: dig."),
    ],
)
def test_a_cancelled_turn_says_in_a_line_whether_anything_ran_later(
    admin_client, ada, fields, words
):
    at = timezone.now()
    times = {"started_at": at + timedelta(seconds=fields.get("started_at", -5))}
    turn = RowFactory(ada).turn("cancelled")
    RowFactory(conversation=turn.conversation).call(
        turn, "c1", "cancelled", tool_name="dig", **{**fields, **times}
    )
    request = CancelRequest.objects.create(
        turn=turn, reason="user", source="button", requested_at=at, settled_at=at, settled_ms=30
    )
    page = admin_client.get(reverse("admin:turns_cancelledturn_change", args=[request.pk]))
    assert words in page.content.decode()
