"""Exports of lists in the real admin: whole, harmless, recorded, and only as far as somebody takes them."""

import asyncio
import csv
import io
import json
from datetime import timedelta
from itertools import islice
from urllib.parse import urlsplit

import pytest
from django.core.asgi import get_asgi_application
from django.db import connection, connections
from django.test import AsyncClient
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from console.exports import BATCH, CONTENT_BATCH
from governance.db import run_in_db_thread
from governance.models import Export, ToolCall
from tests.staff import staff_client

LIST = reverse("admin:governance_toolcall_changelist")
CSV = reverse("admin:governance_toolcall_export", args=["csv"])
JSON = reverse("admin:governance_toolcall_export", args=["json"])
MANY = 2_000


def lines(answer):
    return list(csv.DictReader(io.StringIO(answer.getvalue().decode())))


def make_many(count=MANY, *, at=None):
    """Insert calls of which each five have come at the same moment."""
    at = at or timezone.now()
    ToolCall.objects.bulk_create(
        ToolCall(
            call_id=f"{at:%H%M%S%f}-{number}",
            scope="conversation",
            group="turn",
            tool_name="probe",
            requested_at=at - timedelta(seconds=number // 5),
        )
        for number in range(count)
    )


@pytest.fixture
def staff(db):
    """Return a function that makes staff with permissions and signs them in."""

    def make(*codenames):
        return staff_client("sam", *codenames)

    return make


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, {"good", "slow"}),
        ({"when": "any"}, {"good", "slow", "old"}),
        ({"status__exact": "timed_out"}, {"slow"}),
        ({"when": "24h"}, {"good", "slow"}),
        ({"q": "other"}, {"good"}),
        ({"q": "nowhere"}, set()),
        ({"o": "2", "p": "7", "when": "any"}, {"good", "slow", "old"}),
    ],
)
def test_an_export_has_the_rows_of_the_list_as_it_stands(admin_client, make_call, query, expected):
    make_call(call_id="good", status="succeeded", group="other")
    make_call(call_id="slow", status="timed_out")
    make_call(call_id="old", requested_at=timezone.now() - timedelta(days=3))
    assert {line["call_id"] for line in lines(admin_client.get(CSV, query))} == expected
    as_json = json.loads(admin_client.get(JSON, query).getvalue())
    assert {row["call_id"] for row in as_json} == expected


def test_the_links_of_a_list_keep_its_filters(admin_client, make_call):
    make_call(call_id="slow", status="timed_out")
    page = admin_client.get(LIST, {"status__exact": "timed_out", "p": "1"}).content.decode()
    link = f"{CSV}?status__exact=timed_out&amp;when=24h"
    assert f'href="{link}" download>Export CSV</a>' in page
    assert [line["call_id"] for line in lines(admin_client.get(link.replace("&amp;", "&")))] == [
        "slow"
    ]
    assert "Export JSON</a>" in page


def test_no_cell_is_a_formula_to_a_spreadsheet(admin_client, make_call):
    evil = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "\uff1d1"]
    evil += ['a"b,c', "plain", "", "a;b - c=d"]
    for number, text in enumerate(evil):
        make_call(call_id=str(number), result=text, ended_by_name=text, input={"=x": text})
    cells = {
        line["call_id"]: (line["result"], line["ended_by_name"])
        for line in lines(admin_client.get(CSV))
    }
    for number, text in enumerate(evil[:9]):
        assert cells[str(number)] == (f"'{text}", f"'{text}")
    for number, text in enumerate(evil[9:], 9):
        assert cells[str(number)] == (text, text)
    rows = json.loads(admin_client.get(JSON).getvalue())
    assert {row["call_id"]: row["result"] for row in rows} == {
        str(number): text for number, text in enumerate(evil)
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a;=1", "a;'=1"),
        ('a; "=1"', 'a;\' "=1"'),
        ("a\t@b", "a\t'@b"),
        ("a\r\n-1", "a\r'\n-1"),
        ("\n" * 100_000 + "a", "\n" * 100_000 + "a"),
    ],
    ids=["semicolon", "quoted", "tab", "line", "long"],
)
def test_no_part_of_a_cell_is_a_formula_where_other_signs_end_cells(
    admin_client, make_call, text, told
):
    """Where a comma is decimal, a spreadsheet ends cells at semicolons, and takes no quotes for those of a cell."""
    make_call(result=text)
    (line,) = lines(admin_client.get(CSV))
    assert line["result"] == told


def test_values_keep_their_kind(admin_client, make_call):
    half = {"half": "\ud800"} if connection.vendor == "sqlite" else {}  # PostgreSQL takes none
    call = make_call(input={"word": "größer", **half}, duration_ms=1_500)
    (row,) = json.loads(admin_client.get(JSON).getvalue())
    assert (row["id"], row["input"], row["duration_ms"]) == (call.pk, call.input, 1_500)
    assert row["requested_at"] == call.requested_at.isoformat()
    assert row["ended_at"] is None
    (line,) = lines(admin_client.get(CSV))
    assert "größer" in line["input"]
    assert line["ended_at"] == ""


@pytest.mark.parametrize("has_content", [True, False])
def test_rows_come_in_batches_and_each_once_while_others_are_added(staff, has_content):
    make_many()
    ids = set(ToolCall.objects.values_list("pk", flat=True))
    client = staff("view_toolcall", "export", *(["view_content"] if has_content else []))
    size = CONTENT_BATCH if has_content else BATCH
    answer = client.get(JSON)
    parts, queries = [], []
    stream = iter(answer.streaming_content)
    while True:
        with CaptureQueriesContext(connection) as captured:
            part = next(stream, None)
        if part is None:
            break
        parts.append(part)
        queries.append(len(captured))
        if len(parts) > 1:  # before that nothing is read yet
            make_many(3, at=timezone.now() + timedelta(hours=1))
    found = [row["id"] for row in json.loads(b"".join(parts))]
    assert len(parts) == MANY // size + 2  # with what stands before and after them
    assert len(found) == len(set(found)) == MANY
    assert set(found) == ids
    assert max(queries) <= 4
    assert Export.objects.get().rows == MANY


THREE, NONE = "%Y-%m-%d %H:%M:%S.123", "%Y-%m-%d %H:%M:%S"
MIXED = (THREE, NONE, "%Y-%m-%dT%H:%M:%S.1Z", "")  # the last one is Django's own


@pytest.mark.skipif(connection.vendor != "sqlite", reason="Only SQLite keeps moments as texts.")
@pytest.mark.parametrize("forms", [(THREE,), (NONE,), MIXED])
def test_moments_that_other_programs_have_written_lose_no_row_and_end(admin_client, forms):
    """A text like '10:00:00.123' is less than '10:00:00.123000', which is what it is read as."""
    make_many(4 * CONTENT_BATCH)
    at = timezone.now().replace(microsecond=123_000)
    ToolCall.objects.update(requested_at=at)
    ids = list(ToolCall.objects.values_list("pk", flat=True))
    with connection.cursor() as cursor:
        for number, pk in enumerate(ids):
            if form := forms[number % len(forms)]:
                written = "UPDATE governance_toolcall SET requested_at = %s WHERE id = %s"
                cursor.execute(written, [at.strftime(form), pk])
    parts = admin_client.get(JSON, {"when": "any"}).streaming_content
    text = b"".join(islice(parts, 10))  # more than there are: four batches, and both ends
    found = [row["id"] for row in json.loads(text)]
    assert len(found) == len(ids)
    assert set(found) == set(ids)


def test_an_export_is_recorded(admin_client, make_call):
    make_call(status="timed_out")
    make_call(status="timed_out")
    make_call(status="succeeded")
    admin_client.get(CSV, {"status__exact": "timed_out", "p": "2"}).getvalue()
    export = Export.objects.get()
    assert (export.by_name, export.source, export.format) == ("boss", "governance.ToolCall", "csv")
    assert (export.filters, export.rows) == ({"status__exact": ["timed_out"], "when": ["24h"]}, 2)
    assert export.has_content
    assert export.at <= export.finished_at
    page = admin_client.get(reverse("admin:governance_export_changelist")).content.decode()
    for text in ("tool calls", "status__exact=timed_out", "boss"):
        assert text in page


def test_a_list_offers_no_export_to_who_may_not_export(staff, make_call):
    make_call()
    assert "Export CSV" not in staff("view_toolcall").get(LIST).content.decode()


def test_who_is_not_signed_in_is_asked_to(client, make_call):
    answer = client.get(CSV)
    assert answer.status_code == 302
    assert urlsplit(answer["Location"]).path == reverse("admin:login")


def test_what_cannot_be_exported_is_refused(admin_client, make_call):
    make_call()
    assert admin_client.post(CSV).status_code == 405
    assert admin_client.get(CSV.replace("csv", "exe")).status_code == 404
    for query in ({"when_from": "yesterday"}, {"when": "2h"}):
        answer = admin_client.get(CSV, query)
        assert (answer.status_code, answer["Location"]) == (302, f"{LIST}?e=1")
    assert not Export.objects.exists()


def test_what_may_not_be_seen_cannot_be_asked_for_either(staff, make_call):
    make_call(result="zanzibar")
    client = staff("view_toolcall", "export")
    for page in (LIST, CSV):
        assert client.get(page, {"result__contains": "z"}).status_code == 400
    (line,) = lines(client.get(CSV))
    assert not {"input", "result", "progress", "detail", "late_text"} & line.keys()


@pytest.fixture
async def boss(transactional_db, admin_user):
    """The superuser, and no connection is left when the test is over."""
    yield admin_user
    await run_in_db_thread(connections.close_all)()


async def test_over_asgi_an_export_is_whole(boss):
    await run_in_db_thread(make_many)()
    client = AsyncClient()
    await client.aforce_login(boss)
    answer = await client.get(CSV)
    text = b"".join([part async for part in answer.streaming_content]).decode()
    found = [line["id"] for line in csv.DictReader(io.StringIO(text))]
    assert len(found) == len(set(found)) == MANY
    export = await Export.objects.aget()
    assert export.rows == MANY
    assert export.finished_at is not None


async def test_an_export_ends_with_its_request(boss):
    await run_in_db_thread(make_many)()
    client = AsyncClient()
    await client.aforce_login(boss)
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
    scope = {
        "type": "http",
        "method": "GET",
        "path": CSV,
        "query_string": b"",
        "headers": [(b"host", b"testserver"), (b"cookie", cookies.encode())],
    }
    requests = iter([{"type": "http.request", "body": b""}])
    has_left, parts = asyncio.Event(), []

    async def receive():
        if request := next(requests, None):
            return request
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        parts.append(message)
        if len(parts) == 5:  # the head, the names and three batches: nobody reads on
            has_left.set()
            await asyncio.Event().wait()

    await asyncio.wait_for(get_asgi_application()(scope, receive, send), 60)
    assert parts[0]["status"] == 200
    export = await Export.objects.aget()
    assert (export.rows, export.finished_at) == (3 * CONTENT_BATCH, None)


@pytest.fixture
def searched(admin_client, make_call):
    """An export for which somebody who sees content has typed some of it."""
    make_call(result="about zanzibar")
    asked = {"q": "zanzibar", "result__contains": "zanzi", "status__exact": "failed"}
    answer = admin_client.get(CSV, asked)
    assert lines(answer) == []
    return Export.objects.get()


def texts_about_exports(client):
    """Everything that the admin shows or exports about exports."""
    name = "admin:governance_export"
    pages = [
        reverse(f"{name}_changelist"),
        reverse(f"{name}_change", args=[Export.objects.last().pk]),
    ]
    texts = [client.get(page).content.decode() for page in pages]
    for format in ("csv", "json"):
        answer = client.get(reverse(f"{name}_export", args=[format]))
        texts += [answer.getvalue().decode()] if answer.status_code == 200 else []
    return texts


@pytest.mark.parametrize("codenames", [("view_export",), ("view_export", "export")])
@pytest.mark.parametrize("sees_content", [True, False])
def test_what_an_export_was_searched_for_is_content(staff, searched, codenames, sees_content):
    client = staff(*codenames, *(["view_content"] if sees_content else []))
    texts = texts_about_exports(client)
    assert len(texts) == (4 if "export" in codenames else 2)
    assert [("zanzi" in text, "failed" in text) for text in texts] == [(sees_content, True)] * len(
        texts
    )
    guess = {"terms__q__0__startswith": "zan"}
    answer = client.get(reverse("admin:governance_export_changelist"), guess)
    assert answer.status_code == (200 if sees_content else 400)


def test_a_term_of_somebody_who_sees_no_content_is_none_and_stays_readable(staff, make_call):
    make_call(group="turn")
    client = staff("view_toolcall", "view_export", "export")
    assert lines(client.get(CSV, {"q": "turn"})) != []
    assert all("q=turn" in text for text in texts_about_exports(client)[:2])
