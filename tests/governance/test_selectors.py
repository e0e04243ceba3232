"""Reads of governance: calls in order, and the health of a scope."""

from datetime import timedelta

from django.utils import timezone

from governance import selectors


def test_calls_of_groups_come_in_the_order_of_their_steps(make_call, django_assert_num_queries):
    make_call(call_id="d", group="two", step=0)
    make_call(call_id="c", group="one", step=1, position=0)
    make_call(call_id="b", group="one", step=0, position=1)
    make_call(call_id="a", group="one", step=0, position=0)
    make_call(call_id="x", group="three")
    with django_assert_num_queries(1):
        found = selectors.calls_of_groups(["two", "one"])
    assert [call.call_id for call in found] == ["a", "b", "c", "d"]
    assert [call.call_id for call in selectors.calls_of_group("two")] == ["d"]
    assert selectors.calls_of_groups([]) == []


def test_the_health_of_a_scope_counts_and_names_what_timed_out(
    make_call, django_assert_num_queries
):
    now = timezone.now()
    make_call(status="succeeded")
    make_call(status="succeeded", tool_name="other")
    make_call(status="timed_out", error_type="timeout", ended_at=now - timedelta(minutes=5))
    make_call(status="abandoned", error_type="timeout", ended_at=now)
    make_call(status="timed_out", error_type="timeout", tool_name="other", ended_at=now)
    make_call(status="running", scope="elsewhere")
    with django_assert_num_queries(1):
        health = selectors.health("conversation")
    assert health.total == 5
    assert health.by_status == {"succeeded": 2, "timed_out": 2, "abandoned": 1}
    assert health.by_error_type == {"timeout": 3}
    assert [(tool.tool_name, tool.count, tool.last_at) for tool in health.timed_out_tools] == [
        ("probe", 2, now),
        ("other", 1, now),
    ]


def test_the_health_of_an_unknown_scope_is_empty(db):
    assert selectors.health("nothing").total == 0
