"""A temporary limit ends by the database's clock, in every cache and running call, and on the record."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from django.core.exceptions import ValidationError
from django.db.models.functions import Now
from django.urls import reverse
from django.utils.timezone import localtime, make_aware

from governance import runtime, services, temporary_limits
from governance.core.calls import CallStatus, ToolCall
from governance.core.executor import Host
from governance.core.policy import resolve
from governance.core.registry import make_tool, registry
from governance.db import run_in_db_thread
from governance.db_clock import database_now
from governance.durations import time_text
from governance.models import PolicyChange, ToolPolicy
from governance.models import ToolCall as Row
from governance.policies import SYSTEM, DatabasePolicySource, read_policies
from governance.recorder import Recorder
from tests.console.test_limits_page import PAGE, posted, row_of
from tests.support import eventually, pass_time

PROBE = reverse("admin:governance_toolpolicy_tool", args=["probe"])
HOUR = timedelta(hours=1)


def save(until=None, **values):
    return services.save_tool_policy(tool_name="probe", values=values, by=None, until=until)


def set_for_an_hour(**values):
    return save(until=database_now() + HOUR, **values)


def let_it_end(*caches):
    """Time passes: nobody edits, the end lies in the past, also of what caches know."""
    ToolPolicy.objects.filter(until__isnull=False).update(until=Now())
    for cache in caches:
        cache._policies = replace(cache.policies, next_end=database_now())


def said(page):
    return " ".join(str(message) for message in page.context["messages"])


def limit():
    tool = registry.get("probe")
    return resolve(read_policies().levels(tool)).timeout


@pytest.mark.django_db
def test_the_limit_gives_way_to_the_one_before_without_anybody_writing(probe):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    assert limit() == 90
    source = DatabasePolicySource()
    source.reload()
    let_it_end()
    assert limit() == 30
    assert read_policies().edits["probe"].by == SYSTEM
    known = source.policies
    assert resolve(known.levels(probe)).timeout == 90  # it was read while the limit counted
    assert ToolPolicy.objects.get().timeout_ms == 90_000  # nobody has written anything


@pytest.mark.django_db
def test_a_cache_notices_the_end_though_no_version_has_moved(probe):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    source = DatabasePolicySource()
    source.reload()
    assert source.policies.next_end is not None
    version = source.version
    assert not source.refresh()
    let_it_end(source)
    assert source.refresh()
    assert source.policies.ended
    assert resolve(source.policies.levels(probe)).timeout == 30
    assert source.version == version


@pytest.mark.django_db
def test_the_end_is_audited_as_the_systems_once(probe):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    assert services.end_temporary_limits() == []
    let_it_end()
    [change] = services.end_temporary_limits()
    assert services.end_temporary_limits() == []
    assert (change.by, change.by_name, change.action) == (None, SYSTEM, "change")
    assert change.changes["timeout_ms"] == [90_000, 30_000]
    assert change.reason == "The temporary limit has expired."
    row = ToolPolicy.objects.get()
    assert (row.timeout_ms, row.until, row.then) == (30_000, None, {})
    assert limit() == 30


@pytest.mark.django_db
def test_a_temporary_limit_of_a_tool_without_limits_leaves_no_row(probe):
    set_for_an_hour(timeout_ms=90_000, tool_enabled=False)
    let_it_end()
    assert limit() == 50  # the tool's own
    assert read_policies().is_enabled("probe")
    services.end_temporary_limits()
    assert not ToolPolicy.objects.exists()
    assert PolicyChange.objects.first().action == "delete"


@pytest.mark.django_db
def test_an_edit_meanwhile_replaces_both_values(probe):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    change = save(timeout_ms=45_000)
    assert change.changes["until"][1] is None
    row = ToolPolicy.objects.get()
    assert (row.timeout_ms, row.until, row.then) == (45_000, None, {})


@pytest.mark.django_db
def test_an_edit_of_another_limit_leaves_the_end(probe):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    save(max_running=2)
    let_it_end()
    services.end_temporary_limits()
    row = ToolPolicy.objects.get()
    assert (row.timeout_ms, row.max_running) == (30_000, 2)


@pytest.mark.django_db
def test_a_second_temporary_limit_returns_to_what_was_there_before_the_first(probe):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    save(until=database_now() + 2 * HOUR, timeout_ms=120_000)
    row = ToolPolicy.objects.get()
    assert row.then == {"timeout_ms": 30_000}
    save(until=database_now() + 3 * HOUR)  # only longer
    row.refresh_from_db()
    assert row.timeout_ms == 120_000
    let_it_end()
    assert limit() == 30


@pytest.mark.django_db
def test_an_edit_after_the_end_is_one_of_what_counts_then(probe):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    let_it_end()
    change = save(timeout_ms=20_000)
    assert change.changes == {"timeout_ms": [30_000, 20_000]}
    assert [row.by_name for row in PolicyChange.objects.all()[:2]] == ["", SYSTEM]


@pytest.mark.django_db
def test_an_edit_of_one_of_two_temporary_limits_leaves_the_other_its_end(probe):
    save(timeout_ms=30_000, max_running=2)
    set_for_an_hour(timeout_ms=90_000, max_running=5)
    save(timeout_ms=45_000)
    row = ToolPolicy.objects.get()
    assert (row.timeout_ms, row.max_running, row.then) == (45_000, 5, {"max_running": 2})
    let_it_end()
    services.end_temporary_limits()
    row = ToolPolicy.objects.get()
    assert (row.timeout_ms, row.max_running, row.until) == (45_000, 2, None)


@pytest.mark.django_db
def test_an_end_and_the_edit_after_it_have_versions_of_their_own(probe, admin_user):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    let_it_end()
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 20_000}, by=admin_user)
    assert [change.version for change in PolicyChange.objects.all()] == [4, 3, 2, 1]
    assert read_policies().edits["probe"].by == "boss"


def revert(client, change):
    return client.post(PROBE, {"_revert": change.pk, "why": "night is over"}, follow=True)


def state():
    row = ToolPolicy.objects.get()
    return row.timeout_ms, row.until, row.then


def test_a_reverted_temporary_limit_goes_with_its_end(admin_client, admin_user, probe):
    save(timeout_ms=30_000)
    temporary = set_for_an_hour(timeout_ms=90_000)
    page = revert(admin_client, temporary)
    assert state() == (30_000, None, {})
    change = PolicyChange.objects.first()
    assert (change.by, change.action) == (admin_user, "change")
    assert change.reason == "Reverts version 2. night is over"
    assert change.changes["timeout_ms"] == [90_000, 30_000]
    assert change.changes["until"] == [temporary.changes["until"][1], None]
    assert f"{change.describe_value('until', temporary.changes['until'][1])} → not set" in said(
        page
    )
    assert limit() == 30
    assert services.end_temporary_limits() == []


def test_a_reverted_temporary_limit_of_a_tool_without_limits_leaves_no_row(admin_client, probe):
    temporary = set_for_an_hour(timeout_ms=90_000)
    revert(admin_client, temporary)
    assert not ToolPolicy.objects.exists()
    deleted = PolicyChange.objects.first()
    assert deleted.action == "delete"
    assert deleted.changes["until"] == [temporary.changes["until"][1], None]
    assert limit() == 50
    revert(admin_client, deleted)  # what was temporary comes back as such
    assert state() == (
        90_000,
        datetime.fromisoformat(temporary.changes["until"][1]),
        {"timeout_ms": None},
    )
    let_it_end()
    assert limit() == 50


def test_another_change_is_reverted_while_a_limit_is_temporary(admin_client, probe):
    first = save(timeout_ms=30_000)
    other = save(max_running=2)
    set_for_an_hour(timeout_ms=90_000)
    before = state()
    assert "Someone else has changed" in said(revert(admin_client, first))
    assert state() == before
    revert(admin_client, other)
    assert ToolPolicy.objects.get().max_running is None
    assert state() == before  # the end stays
    let_it_end()
    revert(admin_client, first)  # its value counts again
    assert not ToolPolicy.objects.exists()


def test_a_reverted_second_temporary_limit_gives_way_to_the_first_one(admin_client, probe):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    before = state()
    revert(admin_client, save(until=database_now() + 2 * HOUR, timeout_ms=120_000))
    assert state() == before
    revert(admin_client, save(until=database_now() + 3 * HOUR))  # only longer
    assert state() == before
    let_it_end()
    assert limit() == 30


def test_a_reverted_edit_of_a_temporary_limit_brings_back_its_end(admin_client, probe):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    before = state()
    revert(admin_client, save(timeout_ms=45_000))
    assert state() == before
    revert(admin_client, services.delete_tool_policy(tool_name="probe", by=None))
    assert state() == before
    let_it_end()
    assert limit() == 30


def test_what_ended_in_the_past_does_not_come_back_for_good(admin_client, probe):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    let_it_end()
    [end] = services.end_temporary_limits()
    assert "The end of a temporary limit is in the past." in said(revert(admin_client, end))
    assert state() == (30_000, None, {})


def test_a_row_that_says_something_again_later_is_not_deleted(admin_client, probe):
    """Its only limit is lifted for an hour."""
    other = save(max_running=2)
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=None)
    revert(admin_client, other)
    assert limit() == 50
    let_it_end()
    assert limit() == 30


@pytest.mark.django_db
def test_limits_that_make_no_sense_after_the_end_are_refused(probe):
    save(timeout_ms=30_000)
    set_for_an_hour(timeout_ms=90_000)
    with pytest.raises(ValidationError, match="would never be reached"):
        save(idle_timeout_ms=60_000)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("span", "words"), [(-HOUR, "is in the past"), (timedelta(days=8), "at most a week")]
)
def test_an_end_that_cannot_be_meant_is_refused(probe, span, words):
    with pytest.raises(ValidationError, match=words):
        save(until=database_now() + span, timeout_ms=90_000)
    assert not ToolPolicy.objects.exists()


@pytest.mark.django_db
def test_people_write_an_end_as_a_time_a_date_or_a_span():
    now = localtime(database_now())
    assert temporary_limits.parse_end(" ") is None
    for text in ("18:00", "00:00", "23:59:59"):
        end = temporary_limits.parse_end(text)
        assert now < end <= now + timedelta(days=1, hours=1)
        assert f"{end:%H:%M:%S}".startswith(text)
    assert abs(temporary_limits.parse_end("2 h") - now - 2 * HOUR) < timedelta(minutes=1)
    moment = temporary_limits.parse_end("2030-01-31 18:00")
    assert moment == make_aware(datetime.fromisoformat("2030-01-31 18:00"))
    for text in ("18", "soon", "25:00", "2030-02-31 18:00", "18:00Z"):
        with pytest.raises(ValidationError, match="is not a valid end"):
            temporary_limits.parse_end(text)


@pytest.mark.django_db
def test_a_temporary_limit_is_set_and_shown_in_the_admin(admin_client, probe):
    save(timeout_ms=30_000)
    form = posted(admin_client.get(PAGE)) | {"probe-timeout_ms": "75 s"}
    page = admin_client.post(PAGE, form | {"until": "soon"})
    assert "“soon” is not a valid end" in page.content.decode()
    for text in ("99999999 h", "9999-12-31 23:59", "8 d"):
        page = admin_client.post(PAGE, form | {"until": text})
        assert "lasts at most a week" in page.content.decode()
    for text in ("-99999999 h", "0001-01-01 00:00"):
        refused = admin_client.post(PAGE, form | {"until": text})
        assert "is in the past" in refused.content.decode()
    assert (posted(page)["probe-timeout_ms"], posted(page)["until"]) == ("75 s", "8 d")
    admin_client.post(PAGE, form | {"until": "2 h"})
    row = ToolPolicy.objects.get()
    shown = f"only until {time_text(row.until)}, then total limit: 30 s"
    assert shown in " ".join(row_of(admin_client.get(PAGE), "probe"))
    longer = {"probe-timeout_ms": "75 s", "probe-tool_enabled": "on", "until": "4 h"}
    admin_client.post(PROBE, longer | {"probe-revision": row.revision})
    assert ToolPolicy.objects.get().until > row.until + HOUR
    assert "only until → " not in PolicyChange.objects.first().summary
    assert PolicyChange.objects.first().summary.startswith("only until: ")
    let_it_end()
    cells = " ".join(row_of(admin_client.get(PAGE), "probe"))
    assert "30 s (from: admin limit for this tool)" in cells
    assert "system" in cells
    assert "only until" not in cells


@run_in_db_thread
def _set_for_an_hour(**values):
    return services.save_tool_policy(
        tool_name="endless", values=values, by=None, until=database_now() + HOUR
    )


@run_in_db_thread
def _row():
    return Row.objects.get()


@pytest.mark.django_db(transaction=True)
async def test_a_running_call_obeys_the_beginning_and_the_end():
    started = asyncio.Event()

    async def endless() -> None:
        """Never end."""
        started.set()
        await asyncio.Event().wait()

    registry.register(make_tool(endless, timeout=60))
    executor = await runtime.get_executor()
    try:
        call = ToolCall(id="c", tool_name="endless", scope="conversation")
        live = executor.prepare(call)
        host = Host(observer=Recorder(group="t"))
        running = asyncio.create_task(executor.execute(live, host=host))
        await started.wait()
        await _set_for_an_hour(timeout_ms=600_000)
        await eventually(lambda: live.timeout == 600)
        await run_in_db_thread(let_it_end)(runtime._policies)

        async def is_over():
            await runtime.refresh_policies()
            return await run_in_db_thread(
                PolicyChange.objects.filter(by_name=SYSTEM, action="delete").exists
            )()

        await eventually(is_over)
        await eventually(lambda: live.timeout == 60)
        pass_time(60)
        assert (await running).status is CallStatus.TIMED_OUT
        changes = (await _row()).deadline_changes
        assert [(change["from_ms"], change["to_ms"]) for change in changes] == [
            (60_000, 600_000),
            (600_000, 60_000),
        ]
        assert [change["by"] for change in changes] == ["", SYSTEM]
    finally:
        registry.unregister("endless")
        await runtime.close_executor()
