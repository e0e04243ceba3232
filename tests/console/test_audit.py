"""The audit: cancelled turns on one page and in one export, latencies, repairs by day, and that nobody rewrites it."""

import csv
import json
import re
from collections import Counter
from datetime import timedelta
from html import unescape

import pytest
from django.apps import apps
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import DateTimeField
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from console.charts import percentile
from console.lists import EditedList, HistoryList
from governance.models import Activity, Export, McpServerChange, PolicyChange, ToolCall
from tests.console.permission_table import APPS, our_admins, pages_of
from tests.staff import make_staff, sign_in
from tests.turns.row_factory import RowFactory, make_repair
from turns.models import (
    AgentChange,
    Attachment,
    CancelRequest,
    ConversationChange,
    DisconnectPolicyChange,
    Process,
)
from turns.presence import disconnects
from webchat.models import ApiTokenChange

pytestmark = pytest.mark.django_db(transaction=True)

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_IN_WORDS = re.compile(
    rf"\b\d{{1,2}} {_MONTH}( \d{{4}})? \d\d:\d\d:\d\d(\.\d{{3}})? [A-Z]{{3,5}}\b"
)
_LIKE_A_MOMENT = re.compile(
    rf".{{0,20}}(?:\d\d?:\d\d|[ap]\.m\.|\bnoon\b|\bmidnight\b|{_MONTH}[a-z]*\.? \d).{{0,20}}"
)

AUDIT = [
    Activity,
    PolicyChange,
    AgentChange,
    McpServerChange,
    DisconnectPolicyChange,
    ApiTokenChange,
    ConversationChange,
    Export,
]


def address(model, view, *args):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}", args=args)


@pytest.fixture
def cancelled(ada):
    """A turn that ada has cancelled, with one call that may still run, and one that she had cancelled before."""
    factory = RowFactory(ada)
    at = timezone.now()
    turn = factory.turn("cancelled", ended_by_reason="user", agent="", duration_ms=2_000)
    factory.call(
        turn, "c1", "abandoned", disposition="indeterminate", result="[CANCELLED] gone",
        timeout_ms=30_000, timeout_source="tool", idle_timeout_ms=5_000, duration_ms=1_500,
    )  # fmt: skip
    factory.call(turn, "c2", "succeeded", disposition="settled", result="=fine")
    CancelRequest.objects.create(
        turn=turn, tool_id="c1", reason="user", source="api", by_name="ada", requested_at=at
    )
    return CancelRequest.objects.create(
        turn=turn, reason="user", source="button", by=ada, by_name="ada", note="wrong customer",
        requested_at=at, settled_at=at + timedelta(milliseconds=640), settled_ms=640,
        outcome="cancelled", running_tools=["quick"],
    )  # fmt: skip


def test_a_cancelled_turn_is_one_page(admin_client, cancelled):
    shown = admin_client.get(reverse("admin:turns_cancelledturn_changelist")).content.decode()
    assert shown.count("wrong customer") == 1
    page = admin_client.get(
        reverse("admin:turns_cancelledturn_change", args=[cancelled.pk])
    ).content.decode()
    for words in (
        "ada", "by button", "wrong customer", "640&nbsp;ms", "quick", "30&nbsp;s", "5&nbsp;s",
        "indeterminate: it may still be running", "[CANCELLED] gone", "Finished, with valid results: quick (c2).", "by API",
    ):  # fmt: skip
        assert words in page.replace("\u00a0", "&nbsp;"), words


def test_the_pages_of_a_turn_name_the_limit_that_ended_a_call(admin_client, cancelled):
    ToolCall.objects.filter(call_id="c1").update(
        status="timed_out", limit_reached="idle", ended_by_reason="timeout"
    )
    for page in (
        reverse("admin:turns_cancelledturn_change", args=[cancelled.pk]),
        reverse("admin:turns_turn_change", args=[cancelled.turn_id]),
    ):
        assert "the call’s idle limit" in admin_client.get(page).content.decode()


def otherwise_written(html: str) -> list[str]:
    """Return what reads like a moment on a page, and is not in the one format of all pages."""
    body = re.sub(r"<(time|script|select|textarea|label).*?</\1>", " ", html, flags=re.DOTALL)
    text = unescape(re.sub(r"<[^>]*>", " ", body)).replace("\u00a0", " ")
    return _LIKE_A_MOMENT.findall(_IN_WORDS.sub(" ", text))


def fill_moments(at) -> None:
    """Give each row of our own tables every moment that it has none of yet."""
    for app in APPS:
        for model in apps.get_app_config(app).get_models():
            for field in model._meta.concrete_fields:
                if isinstance(field, DateTimeField) and field.null:
                    model._default_manager.filter(**{field.name: None}).update(**{field.name: at})


def test_every_moment_of_every_page_has_one_format(admin_client, planted):
    """All lists, all pages of rows and all own pages, of rows that have every moment that they can have."""
    pages = {page: it for it in our_admins() for page, _needs in pages_of(it)}
    pages = {page: it for page, it in pages.items() if "/export/" not in page}
    assert len(pages) > 60
    boss = get_user_model().objects.get(is_superuser=True)
    for model_admin in our_admins():
        if isinstance(model_admin, EditedList):
            rows = model_admin.model._default_manager.all()
            LogEntry.objects.log_actions(boss.pk, rows, CHANGE, change_message="1 s → 2 s")
    fill_moments(timezone.now())
    Process.objects.update(ended_at=None)  # the list shows those that have not ended
    wrong = {}
    for address, model_admin in pages.items():
        answer = admin_client.get(address)
        if answer.status_code == 200:
            html = answer.content.decode()
            wrong[address] = otherwise_written(html)
            if isinstance(model_admin, HistoryList):
                assert "icon-no.svg" not in html, f"{address}: a red cross for no"
                assert "historylink" not in html, f"{address}: nobody has edited it"
    assert {address: found for address, found in wrong.items() if found} == {}
    assert len(wrong) > 60


def test_every_moment_of_a_page_has_milliseconds_and_a_zone_and_its_title_is_exact(
    admin_client, cancelled
):
    turn, at = cancelled.turn, timezone.localtime(cancelled.requested_at)
    pages = {
        reverse("admin:turns_turn_change", args=[turn.pk]): turn.queued_at,
        reverse("admin:turns_cancelrequest_change", args=[cancelled.pk]): at,
        reverse("admin:turns_cancelledturn_change", args=[cancelled.pk]): cancelled.settled_at,
        reverse("admin:turns_conversation_change", args=[turn.conversation_id]): None,
    }
    for address, moment in pages.items():
        text = admin_client.get(address).content.decode()
        assert not re.search(r"\d+:\d+ [ap]\.m\.", text), address
        if moment is not None:
            local = timezone.localtime(moment)
            clock = local.time().isoformat("milliseconds")
            assert f'title="{local.isoformat()}"' in text
            assert f"{clock}\u00a0{local:%Z}</time>" in text, address


def test_a_cancelled_turn_is_one_row_of_the_export(admin_client, cancelled):
    answer = admin_client.get(reverse("admin:turns_cancelledturn_export", args=["json"]))
    (row,) = json.loads(b"".join(answer.streaming_content))
    assert (row["user"], row["by_name"], row["source"], row["note"], row["settled_ms"]) == (
        "ada", "ada", "button", "wrong customer", 640,
    )  # fmt: skip
    first, second = row["calls"]
    assert (first["call_id"], first["disposition"], first["timeout_ms"]) == (
        "c1", "indeterminate", 30_000,
    )  # fmt: skip
    assert second["status"] == "succeeded"
    assert [told["result"] for told in row["told"]] == ["[CANCELLED] gone", "=fine"]


def test_what_the_agent_was_told_is_content(cancelled, eve):
    client = sign_in(make_staff(eve, "view_cancelrequest", "export"))
    page = client.get(reverse("admin:turns_cancelledturn_change", args=[cancelled.pk]))
    assert "[CANCELLED] gone" not in page.content.decode()
    answer = client.get(reverse("admin:turns_cancelledturn_export", args=["csv"]))
    text = b"".join(answer.streaming_content).decode()
    assert "indeterminate" in text
    assert "gone" not in text
    assert "told" not in text.splitlines()[0]
    figures = (reverse("admin:turns_cancel_latency"), reverse("admin:turns_repairs_by_day"))
    assert [client.get(page).status_code for page in figures] == [200, 403]
    stranger = sign_in(make_staff(eve))
    for name in ("turns_cancelledturn_changelist", "turns_cancel_latency"):
        assert stranger.get(reverse(f"admin:{name}")).status_code == 403


def test_more_calls_and_requests_are_not_more_queries(admin_client, cancelled, ada):
    page = reverse("admin:turns_cancelledturn_change", args=[cancelled.pk])

    def queries(address):
        with CaptureQueriesContext(connection) as context:
            assert admin_client.get(address).status_code == 200
        return len(context)

    addresses = [page, reverse("admin:turns_cancelledturn_changelist")]
    queries(page)  # after it the types of content are known
    before = list(map(queries, addresses))
    factory = RowFactory(ada, conversation=cancelled.turn.conversation)
    for number in range(5):
        factory.call(cancelled.turn, f"more{number}", "cancelled")
        other = factory.turn("cancelled")
        CancelRequest.objects.create(
            turn=other, reason="user", source="button", by_name="ada", requested_at=timezone.now()
        )
    assert list(map(queries, addresses)) == before


@pytest.mark.usefixtures("whole_hour")
def test_the_latencies_are_those_of_the_rows(admin_client, cancelled, ada):
    factory = RowFactory(ada)
    now = timezone.now()
    times = {"typed": [3, 9, 1, 2, 50], "voice": [700]}
    for source, took in times.items():
        for settled_ms in took:
            CancelRequest.objects.create(
                turn=factory.turn("cancelled"), reason="user", source=source, by_name="ada",
                requested_at=now, settled_at=now, settled_ms=settled_ms,
            )  # fmt: skip
    CancelRequest.objects.create(
        turn=factory.turn("cancelled"), reason="user", source="typed", mode="after_step",
        requested_at=now, settled_at=now, settled_ms=90_000,
    )  # fmt: skip
    page = admin_client.get(reverse("admin:turns_cancel_latency"), {"span": "7d"}).content.decode()
    page = page.replace("\u00a0", " ")
    assert "typed</strong> 5 cancels. p50: 3 ms. p99: 50 ms." in page
    assert "spoken</strong> 1 cancel. p50: 700 ms. p99: 700 ms." in page
    assert "by button</strong> 1 cancel. p50: 640 ms." in page
    assert "by API" not in page  # nothing of it has come true
    cells = (f"{timezone.localdate():%Y-%m-%d}", 5, "3 ms", "50 ms")
    today = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    assert today in page
    assert "style=" not in page.partition('id="content-main"')[2]


@pytest.mark.parametrize(
    ("values", "percent", "wanted"),
    [
        ([], 50, None),
        ([7], 99, 7),
        (range(1, 101), 99, 99),
        (range(1, 101), 50, 50),
        ([1, 2], 50, 1),
    ],
)
def test_a_percentile_is_a_value_that_was_there(values, percent, wanted):
    assert percentile(values, percent) == wanted


@pytest.mark.usefixtures("whole_hour")
def test_repairs_are_counted_by_day_and_cause(admin_client, ada):
    factory = RowFactory(ada)
    turn = factory.turn("interrupted")
    causes = ["crash", "crash", "user", "timeout"]
    for ago, cause in enumerate(causes):
        make_repair(turn, cause=cause, at=timezone.now() - timedelta(days=ago // 2))
    page = admin_client.get(reverse("admin:turns_repairs_by_day")).content.decode()
    assert "4 repairs in 30 days." in page
    bars = {(ago // 2, cause) for ago, cause in enumerate(causes)}
    assert page.count("<rect") == len(bars) + len(set(causes))  # the second in the legend
    totals = Counter(ago // 2 for ago in range(4))
    for ago, count in totals.items():
        day = timezone.localdate() - timedelta(days=ago)
        assert f'<td class="number">{day:%Y-%m-%d}</td><td class="number">{count}</td>' in page
    nothing = admin_client.get(reverse("admin:turns_repairs_by_day"), {"span": "a'b"})
    assert nothing.status_code == 200


def an_entry(model, ada):
    if model is Activity:
        return Activity.objects.create(kind="limits", action="change", at=timezone.now())
    if model is Export:
        return Export.objects.create(source="turns.Turn", format="csv")
    extra = {
        name: "x"
        for name in ("tool_name", "agent_name", "server_name", "token_name")
        if name in {field.name for field in model._meta.fields}
    }
    if model is PolicyChange:
        extra["version"] = 1
    if model is ConversationChange:
        extra["conversation_id"] = RowFactory(ada).id
    return model.objects.create(action="change", **extra)


def test_every_audited_edit_has_its_list(db):
    changes = {
        model
        for model in apps.get_models()
        if any(base.__name__ == "Change" for base in model.__mro__) and not model._meta.proxy
    }
    assert changes <= set(AUDIT)


def test_an_edit_of_the_disconnect_policy_is_audited(admin_client, ada):
    summary = disconnects.save({"policy": "detach", "grace_ms": 0}, by=ada)
    change = DisconnectPolicyChange.objects.get()
    assert (change.by, change.by_name, change.summary) == (ada, "ada", summary)
    assert "let it continue" in summary
    shown = admin_client.get(address(DisconnectPolicyChange, "changelist")).content.decode()
    assert "cancel after a grace period → let it continue" in shown
    assert not disconnects.save({"policy": "detach"}, by=ada)
    assert DisconnectPolicyChange.objects.count() == 1


def owned_by(model):
    return {"owner__username": "eve"} if model is Attachment else {"by_name": "eve"}


@pytest.mark.parametrize("model", [*AUDIT, Attachment])
def test_each_list_of_the_audit_exports_what_is_filtered_and_that_is_audited(
    admin_client, ada, eve, model
):
    for user in (ada, eve):
        if model is Attachment:
            Attachment.objects.create(owner=user, name="a.txt", media_type="text/plain", size=1)
        else:
            entry = an_entry(model, user)
            model.objects.filter(pk=entry.pk).update(by_name=user.username)
    wanted = [str(model.objects.order_by("pk").values_list("pk", flat=True).get(**owned_by(model)))]
    filters = {"q": "eve", "when": "24h"}
    page = admin_client.get(address(model, "changelist"), filters).content.decode()
    for format in ("csv", "json"):
        link = f"{address(model, 'export', format)}?q=eve&amp;when=24h"
        assert f'href="{link}"' in page
        exported = admin_client.get(link.replace("&amp;", "&")).getvalue().decode()
        rows = (
            json.loads(exported)
            if format == "json"
            else list(csv.DictReader(exported.splitlines()))
        )
        assert [str(row["id"]) for row in rows] == wanted
        record = Export.objects.latest("pk")
        assert (record.source, record.format, record.rows) == (model._meta.label, format, 1)
        assert record.by_name == "boss"
        assert record.filters | record.terms == {"q": ["eve"], "when": ["24h"]}
        assert record.finished_at is not None
