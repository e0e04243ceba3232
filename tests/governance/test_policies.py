"""The administrators' limits in memory follow the database (T2, T9)."""

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction

from governance import services
from governance.core.policy import TimeoutSource, resolve
from governance.models import DefaultPolicy, ToolPolicy
from governance.policies import DatabasePolicySource, PoliciesNotLoaded


def timeout_of(source, tool):
    policy = resolve(source.levels(tool))
    return policy.timeout, policy.timeout_source


@pytest.fixture
def source(db):
    source = DatabasePolicySource()
    source.reload()
    return source


def test_each_level_gives_way_to_the_next_stronger_one(source, plain, probe, settings):
    assert timeout_of(source, plain) == (120.0, TimeoutSource.BUILT_IN)
    settings.GOVERNANCE_DEFAULT_TIMEOUT = 70
    assert timeout_of(source, plain) == (70, TimeoutSource.SETTING)
    settings.GOVERNANCE_TOOL_TIMEOUTS = {"plain": 65}
    assert timeout_of(source, plain) == (65, TimeoutSource.SETTING)
    services.save_default_policy(values={"timeout_ms": 60_000}, by=None)
    source.refresh()
    assert timeout_of(source, plain) == (65, TimeoutSource.SETTING)
    settings.GOVERNANCE_TOOL_TIMEOUTS = {}
    assert timeout_of(source, plain) == (60.0, TimeoutSource.DEFAULT)
    assert timeout_of(source, probe) == (50, TimeoutSource.TOOL)
    settings.GOVERNANCE_TOOL_TIMEOUTS = {"probe": 45}
    assert timeout_of(source, probe) == (45, TimeoutSource.SETTING)
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 40_000}, by=None)
    source.refresh()
    assert timeout_of(source, probe) == (40.0, TimeoutSource.OVERRIDE)


def test_an_override_out_of_force_or_deleted_gives_way_to_the_next_level(source, probe):
    services.save_tool_policy(
        tool_name="probe", values={"timeout_ms": 40_000, "tool_enabled": False}, by=None
    )
    source.refresh()
    assert not resolve(source.levels(probe)).enabled
    services.save_tool_policy(tool_name="probe", values={"is_active": False}, by=None)
    source.refresh()
    assert timeout_of(source, probe) == (50, TimeoutSource.TOOL)
    assert resolve(source.levels(probe)).enabled
    services.save_tool_policy(tool_name="probe", values={"is_active": True}, by=None)
    services.delete_tool_policy(tool_name="probe", by=None)
    source.refresh()
    assert timeout_of(source, probe) == (50, TimeoutSource.TOOL)


def test_levels_carry_the_version(source, probe):
    assert source.levels(probe).version == 0
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 40_000}, by=None)
    assert source.refresh()
    assert source.levels(probe).version == source.version == 1


def test_levels_say_who_edited_the_limits_of_a_tool_last(source, probe, plain):
    ada, eve = (get_user_model().objects.create_user(name) for name in ("ada", "eve"))
    assert source.levels(probe).changed_by == ""
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 40_000}, by=ada)
    source.refresh()
    assert (source.levels(probe).changed_by, source.levels(plain).changed_by) == ("ada", "")
    services.save_default_policy(values={"timeout_ms": 60_000}, by=eve)
    source.refresh()
    assert (source.levels(probe).changed_by, source.levels(plain).changed_by) == ("eve", "eve")
    services.delete_tool_policy(tool_name="probe", by=ada)
    source.refresh()
    assert (source.levels(probe).changed_by, source.levels(plain).changed_by) == ("ada", "eve")


def test_the_first_question_loads(db, probe):
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 40_000}, by=None)
    assert timeout_of(DatabasePolicySource(), probe) == (40.0, TimeoutSource.OVERRIDE)


async def test_on_an_event_loop_an_unloaded_source_hands_out_no_limit(probe):
    with pytest.raises(PoliciesNotLoaded):
        DatabasePolicySource().levels(probe)


@pytest.mark.django_db(transaction=True)
async def test_a_source_is_loaded_and_refreshed_from_coroutines(probe):
    source = DatabasePolicySource()
    await source.aload()
    assert not await source.arefresh()
    assert timeout_of(source, probe) == (50, TimeoutSource.TOOL)


def test_levels_come_from_memory(source, probe, django_assert_num_queries):
    with django_assert_num_queries(0):
        source.levels(probe)


def test_an_unmoved_version_costs_one_query(source, django_assert_num_queries):
    with django_assert_num_queries(1):
        assert not source.refresh()
    DefaultPolicy.objects.create(pk=1, version=7)
    with django_assert_num_queries(4):
        assert source.refresh()


def test_an_edit_in_this_process_is_in_force_at_its_commit(
    source, probe, django_capture_on_commit_callbacks
):
    told = []
    source.on_change(lambda: told.append(source.version))
    with django_capture_on_commit_callbacks(execute=True):
        services.save_tool_policy(tool_name="probe", values={"timeout_ms": 40_000}, by=None)
        assert timeout_of(source, probe) == (50, TimeoutSource.TOOL)
    assert timeout_of(source, probe) == (40.0, TimeoutSource.OVERRIDE)
    assert told == [1]


def test_an_edit_that_is_rolled_back_is_never_in_force(
    source, probe, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        services.save_tool_policy(tool_name="probe", values={"timeout_ms": 40_000}, by=None)
        transaction.set_rollback(True)
    source.refresh()
    assert timeout_of(source, probe) == (50, TimeoutSource.TOOL)


def test_listeners_hear_of_an_edit_in_another_process_once(source, probe, caplog):
    told = []
    source.on_change(lambda: 1 / 0)
    source.on_change(lambda: told.append("told"))
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 40_000}, by=None)
    assert source.refresh()
    assert not source.refresh()
    assert told == ["told"]
    assert "A listener to changed limits failed" in caplog.text


def test_a_row_saved_directly_is_noticed_when_the_version_moves(source, probe):
    ToolPolicy.objects.create(tool_name="probe", timeout_ms=40_000)
    assert not source.refresh()
    services.save_default_policy(values={"note": "look"}, by=None)
    assert source.refresh()
    assert timeout_of(source, probe) == (40.0, TimeoutSource.OVERRIDE)


def test_a_version_that_went_back_is_followed(source, probe):
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 40_000}, by=None)
    source.refresh()
    ToolPolicy.objects.all().delete()
    DefaultPolicy.objects.all().delete()
    assert source.refresh()
    assert timeout_of(source, probe) == (50, TimeoutSource.TOOL)
