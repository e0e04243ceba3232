"""The page of processes, and what the pages of limits say of where a limit is in force."""

import re

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from governance import policy_reports, runtime, services
from governance.db_clock import database_now
from tests.turns.row_factory import RowFactory, make_process
from turns.models import Process
from turns.processes import process_registry

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = reverse("admin:turns_process_changelist")
LIMITS = reverse("admin:governance_toolpolicy_changelist")


@pytest.fixture
def admin_client(client, transactional_db):
    client.force_login(get_user_model().objects.create_superuser("boss", "", "pw"))
    return client


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
    for words in ("alive", "draining: it starts no turns", "stale: it does not answer", "behind"):
        assert words in text
    assert "A process is stale when it has not renewed its lease for 15 s" in text
    assert rows["runner-1"].view.live == 1
    assert "gone" in text_of(admin_client, PAGE, state="ended")
    detail = reverse("admin:turns_process_change", args=[busy.pk])
    assert "runner-1" in text_of(admin_client, detail)
    assert admin_client.post(detail, {"name": "x"}).status_code == 403


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
    silent = r"runner-1 has been silent for 6\d\d s"
    assert re.search(
        rf"In force in 1 of 3 processes; {silent}; the others report within seconds\.$", message
    )
    Process.objects.filter(name="runner-2").update(policy_version=version + 1)
    text = text_of(admin_client, LIMITS)
    assert f"Version {version + 1} of the limits." in text
    assert re.search(rf"In force in 2 of 3 processes; {silent}\.", text)
    assert f'href="{PAGE}"' in text
    Process.objects.filter(name="runner-1").update(policy_version=version + 1)
    assert "In force in 3 of 3 processes." in text_of(admin_client, LIMITS)


def test_without_processes_nothing_is_claimed():
    assert policy_reports.in_words(1) == ""
