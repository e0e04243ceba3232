"""The list and the page of tool calls in the real admin: found by what happened, complete, and read-only (V4)."""

import re
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.timezone import localtime

from console.lists import CappedPaginator
from governance import services
from governance.conf import GovernanceSettings
from governance.core.excerpts import excerpt
from governance.models import Approval, ToolCall

LIST = reverse("admin:governance_toolcall_changelist")


def listed(admin_client, **query):
    page = admin_client.get(LIST, query)
    assert page.status_code == 200
    return {call.call_id for call in page.context["cl"].result_list}


OF_PROBE = {"good", "slow", "lost", "stopped", "mended", "asked", "tardy", "moved", "capped"}


@pytest.fixture
def calls(make_call):
    make_call(call_id="good", status="succeeded", duration_ms=500, disposition="settled")
    timed_out = {"status": "timed_out", "error_type": "timeout"}
    make_call(call_id="slow", **timed_out, duration_ms=45_000, limit_reached="total")
    make_call(call_id="lost", status="abandoned", error_type="timeout", disposition="indeterminate")
    make_call(call_id="stopped", status="cancelled", error_type="cancelled", ended_by_reason="user")
    make_call(call_id="mended", status="repaired", error_type="interrupted")
    make_call(
        call_id="running", status="running", tool_name="other", group="turn-2", scope="talk-2"
    )
    make_call(call_id="asked", status="awaiting_approval")
    make_call(call_id="tardy", **timed_out, late_kind="returned", limit_reached="idle")
    make_call(call_id="moved", status="succeeded", deadline_changes=[{"from_ms": 1}])
    make_call(call_id="capped", status="succeeded", asked_timeout_ms=9_000_000)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"happened": "timed_out"}, {"slow", "lost", "tardy"}),
        ({"happened": "cancelled"}, {"stopped"}),
        ({"happened": "abandoned"}, {"lost"}),
        ({"happened": "repaired"}, {"mended"}),
        ({"happened": "open"}, {"running", "asked"}),
        ({"happened": "asked"}, {"asked"}),
        ({"happened": "late"}, {"tardy"}),
        ({"happened": "moved"}, {"moved"}),
        ({"happened": "capped"}, {"capped"}),
        ({"status__exact": "timed_out"}, {"slow", "tardy"}),
        ({"error_type__exact": "interrupted"}, {"mended"}),
        ({"disposition__exact": "indeterminate"}, {"lost"}),
        ({"ended_by_reason__exact": "user"}, {"stopped"}),
        ({"ran": "120"}, {"slow"}),
        ({"ran_out": "idle"}, {"tardy"}),
        ({"ran": "1"}, {"good"}),
        ({"q": "other"}, {"running"}),
        ({"q": "nowhere"}, set()),
        ({"q": "turn-2"}, {"running"}),
        ({"q": "talk-2"}, {"running"}),
        ({"q": "slow"}, {"slow"}),
        ({"q": "PRO"}, OF_PROBE),
        ({"tool": "probe"}, OF_PROBE),
    ],
)
def test_calls_are_found_by_what_happened(admin_client, calls, probe, query, expected):
    assert listed(admin_client, **query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, {"now", "hours"}),
        ({"when": "any"}, {"now", "hours", "days", "weeks", "ages"}),
        ({"when": "1h"}, {"now"}),
        ({"when": "24h"}, {"now", "hours"}),
        ({"when": "7d"}, {"now", "hours", "days"}),
        ({"when": "30d"}, {"now", "hours", "days", "weeks"}),
        ({"when_until": "2020-01-02"}, {"ages"}),
        ({"when_from": "2020-01-01T10:00", "when_until": "2020-01-01T10:01"}, {"ages"}),
        ({"when_from": "2020-01-01T10:01", "when_until": "2020-01-02"}, set()),
        ({"when_from": "2020-01-02", "when": "1h"}, {"now", "hours", "days", "weeks"}),
        ({"when": "24h", "tool": "probe"}, {"hours"}),
    ],
)
def test_calls_are_found_by_their_time(admin_client, make_call, probe, query, expected):
    ago = {
        "now": timedelta(minutes=1),
        "hours": timedelta(hours=20),
        "days": timedelta(days=6),
        "weeks": timedelta(days=29),
    }
    for call_id, age in ago.items():
        tool = "probe" if call_id == "hours" else "other"
        make_call(call_id=call_id, tool_name=tool, requested_at=timezone.now() - age)
    long_ago = timezone.make_aware(datetime(2020, 1, 1, 10, 0))  # noqa: DTZ001 - of the site's zone
    make_call(call_id="ages", tool_name="other", requested_at=long_ago)
    assert listed(admin_client, **query) == expected


def test_a_range_of_time_keeps_the_other_choices_and_shows_what_was_typed(admin_client, calls):
    chosen = {"happened": "timed_out", "when_from": "2020-01-01T10:00", "when": "1h", "p": "1"}
    html = admin_client.get(LIST, {**chosen, "p": "1"}).content.decode()
    form = html[html.index('class="governance-time-range"') :]
    assert '<input type="hidden" name="happened" value="timed_out">' in form
    assert 'name="when_from" value="2020-01-01T10:00"' in form
    for gone in ("when", "p"):
        assert f'name="{gone}"' not in form[: form.index("</form>")]


@pytest.mark.parametrize("value", ["soon", "2020-13-01", "2020-01-01 and more", "2020-01-01T99:00"])
def test_a_range_that_is_none_is_refused_as_the_admin_refuses(admin_client, value):
    page = admin_client.get(LIST, {"when_from": value})
    assert (page.status_code, page["Location"]) == (302, f"{LIST}?e=1")
    assert (
        "a filter that this list does not have"
        in admin_client.get(page["Location"]).content.decode()
    )


def test_the_first_moment_of_a_day_stands_in_the_field_of_a_range(admin_client, calls):
    html = admin_client.get(LIST, {"when_from": "2020-01-01"}).content.decode()
    assert 'name="when_from" value="2020-01-01T00:00"' in html


def test_a_detail_page_tells_the_whole_story(admin_client, make_call):
    at = timezone.now()
    call = make_call(
        status="abandoned",
        error_type="timeout",
        disposition="indeterminate",
        input={"text": "<b>bold</b>"},
        result="The tool did not answer",
        timeout_ms=90_000,
        timeout_source="override",
        asked_timeout_ms=7_200_000,
        idle_timeout_ms=5_000,
        deadline_changes=[
            {
                "at": at.isoformat(),
                "from_ms": 30_000,
                "to_ms": 90_000,
                "source": "override",
                "by": "boss",
            },
            {
                "at": at.isoformat(),
                "from_ms": 90_000,
                "to_ms": 90_000,
                "from_idle_ms": 50_000,
                "to_idle_ms": 5_000,
                "source": "override",
                "by": "boss",
            },
        ],
        limit_reached="idle",
        ended_by_reason="timeout",
        ended_by_source="policy",
        ended_by_name="",
        queued_ms=250,
        duration_ms=90_100,
        late_kind="returned",
        late_text="<i>late</i>",
        late_after_ms=3_000,
        progress={"message": "half"},
        started_at=at,
        ended_at=at + timedelta(seconds=90),
    )
    text = admin_client.get(
        reverse("admin:governance_toolcall_change", args=[call.pk])
    ).content.decode()
    text = text.replace("\u00a0", " ")
    assert "1 min 30 s → 1 min 30 s" not in text
    for words in (
        "the call’s idle limit",
        "30 s → 1 min 30 s (admin limit for this tool, boss)",
        "idle limit 50 s → 5 s (admin limit for this tool, boss)",
        "1 min 30 s (admin limit for this tool)",
        "2 h",
        "5 s",
        f'title="{localtime(at).isoformat()}"',
        "time limit",
        "indeterminate: it has since ended and may have had an effect",
        "abandoned, has since ended",
        "250 ms",
        "1 min 30.1 s",
        "returned 3 s after the outcome",
        "&lt;i&gt;late&lt;/i&gt;",
        "&lt;b&gt;bold&lt;/b&gt;",
        "The tool did not answer",
        "half",
    ):
        assert words in text
    assert "<b>bold" not in text


def test_a_call_without_anything_yet_has_a_page(admin_client, make_call):
    call = make_call()
    assert (
        admin_client.get(reverse("admin:governance_toolcall_change", args=[call.pk])).status_code
        == 200
    )


def test_a_call_names_the_change_that_it_obeyed_of_the_default_limits_too(
    admin_client, probe, make_call
):
    own = services.save_tool_policy(tool_name="probe", values={"idle_timeout_ms": 5_000}, by=None)
    default = services.save_default_policy(values={"timeout_ms": 60_000}, by=None)
    links = {}
    for source in ("override", "default"):
        call = make_call(tool_name="probe", call_id=source, timeout_source=source)
        page = admin_client.get(reverse("admin:governance_toolcall_change", args=[call.pk]))
        links[source] = re.findall(r"policychange/(\d+)/change/", page.content.decode())
    assert links == {"override": [str(own.pk)], "default": [str(default.pk)]}
    assert "Default limits: total limit: not set → 1 min" in page.content.decode()


def test_the_list_costs_the_same_for_many_calls_and_reads_no_results(
    admin_client, make_call, django_assert_num_queries
):
    make_call(result="long")
    with CaptureQueriesContext(connection) as few:
        admin_client.get(LIST)
    for _ in range(40):
        make_call(result="long", deadline_changes=[{"from_ms": 1}])
    with django_assert_num_queries(len(few)) as many:
        admin_client.get(LIST)
    rows = [
        query["sql"] for query in many if "ORDER BY" in query["sql"] and "tool_name" in query["sql"]
    ]
    assert rows
    assert not any('"result"' in sql or '"input"' in sql for sql in rows)


def test_no_page_counts_a_long_history(admin_client, make_call, monkeypatch):
    monkeypatch.setattr(CappedPaginator, "most", 60)
    ToolCall.objects.bulk_create(
        ToolCall(
            call_id=f"c{number}",
            scope="s",
            group="g",
            tool_name="probe",
            requested_at=timezone.now(),
        )
        for number in range(100)
    )
    with CaptureQueriesContext(connection) as queries:
        page = admin_client.get(LIST)
    counts = [query["sql"] for query in queries if "COUNT(" in query["sql"]]
    assert counts
    assert all("LIMIT 61" in sql for sql in counts)
    assert page.context["cl"].result_count == 60
    assert page.context["cl"].paginator.num_pages == 2


# Approvals


@pytest.fixture
def questions(db, admin_client):
    def ask(call_id, decision="", **more):
        at = timezone.now() - timedelta(minutes=5)
        return Approval.objects.create(
            **{
                "group": "turn-1",
                "call_id": call_id,
                "scope": "talk-1",
                "tool_name": "exec",
                "input": {"command": f"<b>{call_id}</b>"},
                "requested_at": at,
                "decision": decision,
                "decided_at": at + timedelta(seconds=90) if decision else None,
                **more,
            }
        )

    ask("open")
    ask("yes", "approved", by_name="olga", remember=True, rule="once_per_conversation")
    ask("no", "denied", by_name="ada", reason="not <i>today</i>")
    ask("late", "denied", by_name="ada", is_late=True)
    ask("nobody", "expired")
    ask("stopped", "cancelled")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, {"open", "yes", "no", "late", "nobody", "stopped"}),
        ({"q": "olga"}, {"yes"}),
        ({"q": "turn-1"}, {"open", "yes", "no", "late", "nobody", "stopped"}),
    ],
)
def test_approvals_are_found_by_who_decided_and_their_turn(
    admin_client, questions, query, expected
):
    page = admin_client.get(reverse("admin:governance_approval_changelist"), query)
    assert page.status_code == 200
    assert {row.call_id for row in page.context["cl"].result_list} == expected


def test_an_approval_says_who_decided_what_when(admin_client, questions):
    for row in Approval.objects.all():
        url = reverse("admin:governance_approval_change", args=[row.pk])
        shown = admin_client.get(url).content.decode()
        assert f"&lt;b&gt;{row.call_id}&lt;/b&gt;" in shown
        assert "<i>today</i>" not in shown
    said = admin_client.get(reverse("admin:governance_approval_changelist")).content.decode()
    said = said.replace("\u00a0", " ")
    for words in ("waiting for a person", "for the conversation", "too late", "1 min 30 s"):
        assert words in said


def test_calls_that_wait_for_a_person_are_found(admin_client, make_call):
    make_call(call_id="asked", status="awaiting_approval")
    make_call(call_id="other", status="running")
    filled_in = make_call(call_id="form", status="running")
    about = {"group": filled_in.group, "call_id": "form", "requested_at": timezone.now()}
    Approval.objects.create(form={"message": "?", "fields": []}, **about)
    assert listed(admin_client, happened="asked") == {"asked", "form"}
    assert listed(admin_client, happened="open") == {"asked", "form", "other"}


def test_a_long_text_of_a_call_is_whole_on_its_page_or_says_what_is_left_out(
    admin_client, make_call
):
    lines = [f"line {number} <of> many & more" for number in range(8_000)]
    whole = "\n".join(lines)
    assert len(whole) > GovernanceSettings.RESULT_LIMIT
    kept = excerpt(whole, limit=GovernanceSettings.RESULT_LIMIT)  # what is stored of such a result
    call = make_call(
        status="succeeded",
        input={"text": "x" * 50_000 + "the end of the input"},
        result=kept,
        late_kind="returned",
        late_text=whole,
        progress={"message": "y" * 5_000 + "the end of the progress"},
        detail="z" * 20_000 + "the end of the detail",
    )
    page = admin_client.get(reverse("admin:governance_toolcall_change", args=[call.pk]))
    text = page.content.decode()
    blocks = [unescape(block) for block in re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL)]
    assert kept in blocks
    assert f"{lines[0]}\n" in kept
    assert kept.endswith(lines[-1])
    assert "characters left out" in kept
    assert whole in blocks
    for part in ("input", "progress", "detail"):
        assert f"the end of the {part}" in text
    [style] = re.findall(r'href="[^"]*(console/admin[^"]*\.css)"', text)
    rules = Path("static", style).read_text("utf-8")
    for block in re.findall(r"\.form-row[^{]* pre \{([^}]*)\}", rules):
        assert "pre-wrap" in block
        assert "hidden" not in block
        assert "max-height" not in block
