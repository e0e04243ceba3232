"""The page of processes, and what the pages of limits say of where a limit is in force."""

import re
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import strip_tags

from console.limit_pages import reach
from governance import runtime, services
from governance.db_clock import database_now
from governance.models import ToolPolicy
from tests.staff import sign_in
from tests.support import eventually
from tests.turns.row_factory import RowFactory, make_process
from tests.turns.support import ChatDriver, FakeTools, in_database
from turns.endings import recovery
from turns.models import Process
from turns.processes import process_registry
from turns.testing import call

pytestmark = pytest.mark.django_db(transaction=True)

_CELL = r'<t[hd] class="field-(\w+)[^"]*">(.*?)</t[hd]>'
PAGE = reverse("admin:turns_process_changelist")
LIMITS = reverse("admin:governance_toolpolicy_changelist")


def text_of(client, address, **query):
    return client.get(address, query).content.decode().replace("\u00a0", " ")


def save(seconds):
    values = {"timeout_ms": seconds * 1_000}
    return services.save_tool_policy(tool_name="wait", values=values, by=None)


def test_each_process_reports_the_version_that_it_runs_with(settings):
    settings.TURNS_PROCESS_NAME = "web-1"
    process = process_registry.register()
    process.refresh_from_db()
    assert (str(process), process.policy_version) == ("web-1", runtime.limits_version())
    assert str(process_registry.register(name="runner-1")) == "runner-1"
    runtime._policies.reload()
    version = save(30).version
    assert process_registry.renew(process)
    process.refresh_from_db()
    assert process.policy_version == version == runtime.limits_version()


def test_the_page_says_of_each_process_how_it_is(admin_client, ada):
    runtime._policies.reload()
    version = save(30).version
    busy = make_process(name="runner-1", policy_version=version, abandoned=3)
    RowFactory(ada).turn("running", owner=busy)
    make_process(name="runner-2", policy_version=version - 1, draining_at=database_now())
    make_process(name="runner-3", age=3_600)
    make_process(name="gone", ended_at=database_now())
    page = admin_client.get(PAGE)
    rows = {row.name: row for row in page.context["cl"].result_list}
    assert set(rows) == {"runner-1", "runner-2", "runner-3"}
    text = page.content.decode().replace("\u00a0", " ")
    for words in ("alive", "draining: starts no new turns", "stale: not responding", "behind"):
        assert words in text
    assert "A process is stale if it has not renewed its lease for 15 s" in text
    assert rows["runner-1"].view.live == 1
    assert "gone" in text_of(admin_client, PAGE, state="ended")
    detail = reverse("admin:turns_process_change", args=[busy.pk])
    assert "runner-1" in text_of(admin_client, detail)


def test_a_lost_process_is_kept_with_the_turns_that_its_end_interrupted(admin_client, ada):
    here = {
        "boot_id": process_registry.boot_id(),
        "pid_namespace": process_registry.pid_namespace(),
    }
    gone = make_process(**here, pid=2**22 + 1, start_ticks=1, name="killed")
    make_process(name="frozen", age=3_600)
    process_registry.retire(make_process(name="tidy"))
    lost = [RowFactory(ada).turn("running", owner=gone) for _ in range(2)]
    RowFactory(ada).turn("completed", owner=gone)
    recovery.end_orphaned()
    page = admin_client.get(PAGE, {"state": "ended"}).content.decode()
    assert {name: text.partition(":")[0] for name, text in cells(page, "state").items()} == {
        "killed": "died",
        "frozen": "silent",
        "tidy": "stopped",
    }
    assert cells(page, "lost") == {"killed": "2", "frozen": "—", "tidy": "—"}
    for state, names in (
        ("lost", {"killed", "frozen"}),
        ("died", {"killed"}),
        ("stopped", {"tidy"}),
    ):
        rows = admin_client.get(PAGE, {"state": state, "when": "1h"}).context["cl"].result_list
        assert {row.name for row in rows} == names
    [link] = re.findall(r'class="field-lost"><a href="([^"]+)">2</a>', page)
    turns = admin_client.get(unescape(link)).context["cl"].result_list
    assert {turn.pk for turn in turns} == {turn.pk for turn in lost}


def cells(page, name):
    """Return what each process of the list says in a column, by the process's name."""
    rows = re.findall(r"<tr>(<th.*?)</tr>", page.replace("\u00a0", " "), re.DOTALL)
    shown = {}
    for row in rows:
        of = {field: strip_tags(cell) for field, cell in re.findall(_CELL, row, re.DOTALL)}
        shown[of["process"]] = of[name]
    return shown


def test_the_list_shows_the_code_and_how_old_each_lease_is(admin_client):
    make_process(name="new", age=90, code_version="1.4.0")
    make_process(name="sources", age=7_200, code_version="")
    make_process(name="ahead", age=-5, code_version="1.3.9")  # no clock goes backwards here
    make_process(name="gone", code_version="1.3.8", ended_at=database_now())
    page = admin_client.get(PAGE, {"state": "all"}).content.decode()
    versions = {"new": "1.4.0", "sources": "—", "ahead": "1.3.9", "gone": "1.3.8"}
    assert cells(page, "code") == versions
    ages = cells(page, "lease_age")
    assert re.fullmatch(r"1 min 3\d(\.\d)? s ago", ages["new"])
    assert re.fullmatch(r"2 h( \d+(\.\d)? m?s)? ago", ages["sources"])
    assert re.fullmatch(r"0 m?s ago", ages["ahead"])
    assert ages["gone"] == "—"
    newest = admin_client.get(PAGE, {"o": "5"})  # the column of the code
    assert [row.name for row in newest.context["cl"].result_list][-1] == "new"


async def test_the_list_shows_the_work_that_outlives_its_calls_until_it_ends(
    chat: ChatDriver, fake_tools: FakeTools
):
    def shown() -> str:
        boss, _ = get_user_model().objects.get_or_create(
            username="boss", is_staff=True, is_superuser=True
        )
        client = sign_in(boss)
        process = Process.objects.get(name="here")
        assert process_registry.renew(process)
        return cells(client.get(PAGE).content.decode(), "abandoned")["here"]

    await in_database(lambda: process_registry.register(name="here"))
    assert await in_database(shown) == "0"
    chat.use_script([call("a", "blocked"), call("b", "stubborn")])
    turn_id = await chat.say()
    await chat.running(turn_id, "a", "b")
    await chat.cancel(turn_id)
    await chat.ended(turn_id)
    assert await in_database(shown) == "2"
    for name in "ab":
        fake_tools.open(name)
        await chat.sink.until("tool_settled", tool_id=name)

    async def ended() -> bool:
        return await in_database(shown) == "0"

    await eventually(ended)


def test_the_page_costs_the_same_for_many_processes(admin_client, django_assert_num_queries):
    make_process()
    admin_client.get(PAGE)
    with CaptureQueriesContext(connection) as few:
        admin_client.get(PAGE)
    for _ in range(10):
        make_process()
    with django_assert_num_queries(len(few)):
        admin_client.get(PAGE)


def test_a_save_says_where_it_is_in_force_and_who_is_silent(admin_client):
    runtime._policies.reload()
    process_registry.register(name="web-1")
    version = save(30).version
    make_process(name="runner-1", age=600, policy_version=version)
    make_process(
        name="runner-2", age=-600, policy_version=version
    )  # it stays fresh, however slow we are
    form = {"wait-timeout_ms": "20 s", "wait-tool_enabled": "on", "wait-revision": "1"}
    page = admin_client.post(LIMITS, form, follow=True)
    [message] = map(str, page.context["messages"])
    silent = r"runner-1 has not responded for 6\d\d s"
    assert re.search(
        rf"Active in 1 of 3 processes; {silent}; the others will report within seconds\.$", message
    )
    Process.objects.filter(name="runner-2").update(policy_version=version + 1)
    text = text_of(admin_client, LIMITS)
    assert f"Version {version + 1} of the limits." in text
    assert re.search(rf"Active in 2 of 3 processes; {silent}\.", text)
    assert f'href="{PAGE}"' in text
    Process.objects.filter(name="runner-1").update(policy_version=version + 1)
    assert "Active in 3 of 3 processes." in text_of(admin_client, LIMITS)


def test_every_page_of_limits_has_the_line_which_is_open_until_all_processes_obey(admin_client):
    runtime._policies.reload()
    process_registry.register(name="web-1")
    version = save(30).version
    runtime._policies.reload()
    make_process(name="runner-1", age=-600, policy_version=version - 1)
    row = ToolPolicy.objects.get(tool_name="wait")
    names = {
        LIMITS: "toolpolicy",
        reverse("admin:governance_toolpolicy_tool", args=["wait"]): "toolpolicy",
        reverse("admin:governance_toolpolicy_change", args=[row.pk]): "toolpolicy",
        reverse("admin:governance_defaultpolicy_change", args=[1]): "defaultpolicy",
    }
    for page, model in names.items():
        part = reverse(f"admin:governance_{model}_in_force")
        html = text_of(admin_client, page)
        line = text_of(admin_client, part)
        assert f'data-from="{part}"' in html
        assert "console/refresh.js" in html
        assert line.strip() in html.strip()
        assert "Active in 1 of 2 processes; the others will report within seconds." in line
        assert "data-open" in line
        assert '<a href="">Refresh</a>' in line  # without JavaScript
    Process.objects.filter(name="runner-1").update(policy_version=version)
    for page in (*names, reverse("admin:governance_defaultpolicy_in_force")):
        text = text_of(admin_client, page)
        assert "Active in 2 of 2 processes." in text
        assert "data-open" not in text
        assert '<a href="">' not in text


def test_a_read_of_the_line_takes_no_message_away(admin_client):
    runtime._policies.reload()
    process_registry.register(name="web-1")
    form = {"wait-timeout_ms": "20 s", "wait-tool_enabled": "on", "wait-revision": "0"}
    assert admin_client.post(LIMITS, form).status_code == 302
    admin_client.get(reverse("admin:governance_toolpolicy_in_force"))
    [message] = admin_client.get(LIMITS).context["messages"]
    assert "Active in 1 of 1 processes." in str(message)


def test_the_list_of_processes_follows_by_itself_and_has_a_link_for_who_has_no_scripts(
    admin_client,
):
    make_process(name="runner-1")
    html = text_of(admin_client, PAGE)
    part = html.split('<div id="processes" data-refresh')[1]
    assert "runner-1" in part
    assert "The limits are at version" in part
    assert 'data-refresh-pause data-seconds="5"' in html
    assert "data-until-known" not in html  # ages and live turns are never known for good
    assert '<a href="">Refresh</a>' in html
    assert "console/refresh.js" in html


def test_without_processes_nothing_is_claimed():
    assert reach(1).words == ""
