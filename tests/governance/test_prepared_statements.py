"""Prepared statements: the same rows as the querysets that they are made of, for whatever values."""

from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F, IntegerField, QuerySet, signals
from django.db.models.expressions import RawSQL
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from governance import call_store
from governance.core.calls import CallStatus
from governance.models import ToolCall
from governance.prepared_statements import Insert, Select, Update, fields_of
from tests.turns import slow_path

pytestmark = pytest.mark.django_db

FIELDS = [field.attname for field in ToolCall._meta.concrete_fields if field.attname != "id"]
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
rows = st.builds(
    ToolCall,
    call_id=st.uuids().map(str),
    scope=st.sampled_from(["here", "there"]),
    group=st.sampled_from(["one", "two"]),
    step=st.integers(0, 3),
    tool_name=texts,
    input=st.dictionaries(texts, json, max_size=3),
    status=st.sampled_from([status.value for status in CallStatus]),
    result=texts,
    is_error=st.booleans(),
    requested_at=moments,
    started_at=st.none() | moments,
    timeout_ms=st.none() | st.integers(0, 2**40),
)
many = settings(max_examples=30)


def _of(group: Any, step: Any, requested_at: Any) -> "QuerySet[ToolCall]":
    found = ToolCall.objects.filter(group=group, step__gte=step, requested_at__lte=requested_at)
    return found.annotate(next_step=F("step") + step).order_by("pk")


PLACES = fields_of(ToolCall, "group", "step", "requested_at")
INSTANCES = Select(_of, **PLACES)
TUPLES = Select(
    lambda **values: _of(**values).values_list("call_id", "input", "is_error", "started_at"),
    **PLACES,
)


def stored(row: ToolCall) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FIELDS}


@many
@given(made=st.lists(rows, max_size=4), group=st.sampled_from(["one", "two"]), at=moments)
def test_a_select_has_the_rows_of_its_queryset(made: list[ToolCall], group: str, at: datetime):
    with transaction.atomic():
        ToolCall.objects.bulk_create(made)
        for statement in (INSTANCES, TUPLES):
            for step in range(3):
                values = {"group": group, "step": step, "requested_at": at}
                slow, fast = slow_path.select(statement, **values), statement.all(**values)
                assert fast == slow
                assert statement.first(**values) == (slow[0] if slow else None)
        pairs = zip(slow_path.select(INSTANCES, **values), INSTANCES.all(**values), strict=True)
        for expected, found in pairs:
            assert stored(found) == stored(expected)
            assert (found.pk, found.next_step) == (expected.pk, expected.next_step)
        transaction.set_rollback(True)


@many
@given(row=rows)
def test_an_insert_stores_what_the_model_would(row: ToolCall):
    with transaction.atomic():
        INSERT.one(row)
        assert stored(ToolCall.objects.get(pk=row.pk)) == stored(row)
        again = ToolCall(**{**stored(row), "call_id": "another"})
        INSERT.many([again])
        assert stored(ToolCall.objects.get(call_id="another")) == stored(again)
        transaction.set_rollback(True)


@many
@given(row=rows, target=st.sampled_from([*call_store.END, None]), result=texts, at=moments)
def test_a_move_of_a_call_writes_what_its_queryset_would(
    row: ToolCall, target: Any, result: str, at: datetime
):
    """Every compare-and-set of a call: from any status, it moves the same rows to the same values."""
    statement = call_store.END[target] if target else call_store.START
    with transaction.atomic():
        row.save()
        values = {name: getattr(row, name) for name in statement.places}
        values |= {"status": target[0].value if target else "running"}
        values |= {"result": result, "ended_at": at, "started_at": at}
        values = {name: values[name] for name in statement.places}
        outcomes = []
        for run in (
            partial(slow_path.update, statement),
            statement.run,
            lambda **it: statement.run_each([it]),
            lambda **it: statement.run_each([it, {**it, "call_id": "nobody's"}]),
        ):
            moved = run(**values)
            outcomes.append((moved, stored(ToolCall.objects.get(pk=row.pk))))
            ToolCall.objects.filter(pk=row.pk).update(**stored(row))
        assert all(outcome == outcomes[0] for outcome in outcomes)
        transaction.set_rollback(True)


INSERT = Insert(ToolCall)


def test_a_statement_is_compiled_once():
    built = []

    def build(group: Any) -> "QuerySet[ToolCall]":
        built.append(group)
        return ToolCall.objects.filter(group=group)

    statement = Select(build, **fields_of(ToolCall, "group"))
    with CaptureQueriesContext(connection) as queries:
        for group in ("one", "two"):
            assert statement.all(group=group) == []
    assert len(built) == 1
    assert len(queries) == 2


def test_a_percent_sign_in_a_statement_is_no_place():
    ToolCall.objects.create(call_id="a", group="100%", requested_at=datetime.now(UTC))
    statement = Select(
        lambda group: ToolCall.objects.filter(group=group).values_list(RawSQL("'%%s'", ())),
        **fields_of(ToolCall, "group"),
    )
    assert statement.all(group="100%") == slow_path.select(statement, group="100%") == [("%s",)]


def test_a_refusal_is_an_error_of_django_and_closes_the_transaction_to_all_statements():
    row = ToolCall(call_id=str(uuid4()), requested_at=datetime.now(UTC))
    insert = Insert(ToolCall)
    insert.one(row)
    with transaction.atomic():
        for refused in (lambda: insert.one(row), lambda: insert.many([row, row])):
            with pytest.raises(IntegrityError), transaction.atomic():
                refused()
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            INSTANCES.all(group="one", step=0, requested_at=row.requested_at)
    assert ToolCall.objects.filter(call_id=row.call_id).count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_transaction_holds_from_its_first_statement_on_and_without_one_each_counts():
    kept, undone = (
        ToolCall(call_id=name, group=name, requested_at=datetime.now(UTC))
        for name in ("kept", "undone")
    )
    INSERT.one(kept)
    for undo in (partial(INSERT.one, undone), partial(INSERT.many, [undone, kept])):
        with suppress(IntegrityError), transaction.atomic():
            undo()
            transaction.set_rollback(True)
    values = {"step": 0, "requested_at": datetime.now(UTC)}
    with transaction.atomic():
        assert INSTANCES.all(group="undone", **values) == []
        assert connection.in_atomic_block
        INSERT.one(undone)
        transaction.set_rollback(True)
    assert [row.call_id for row in ToolCall.objects.all()] == ["kept"]


def test_an_update_may_count_up():
    row = ToolCall.objects.create(call_id=str(uuid4()), requested_at=datetime.now(UTC), step=2)
    count = Update(
        lambda pk, by: (ToolCall.objects.filter(pk=pk), {"step": F("step") + by}),
        **fields_of(ToolCall, "pk"),
        by=IntegerField(),
    )
    assert count.run(pk=row.pk, by=3) == 1
    assert count.run_each([{"pk": row.pk, "by": 1}, {"pk": row.pk, "by": 2}]) == 2
    assert count.run_each([]) == 0
    assert count.run_each([{"pk": row.pk, "by": 1}] * 6) == 6
    row.refresh_from_db()
    assert row.step == 14


def test_who_listens_to_instances_is_told_of_those_that_are_read():
    """Django tells of each instance that it makes; the short way to one is left while anybody listens."""
    ToolCall.objects.create(call_id="a", group="one", requested_at=datetime.now(UTC))
    told = []

    def note(instance: ToolCall, **_: Any) -> None:
        told.append(instance.call_id)

    values = {"group": "one", "step": 0, "requested_at": datetime.now(UTC)}
    signals.post_init.connect(note, sender=ToolCall)
    try:
        [read] = INSTANCES.all(**values)
    finally:
        signals.post_init.disconnect(note, sender=ToolCall)
    assert told == ["a"]
    [again] = INSTANCES.all(**values)
    assert told == ["a"]
    assert stored(again) == stored(read)
    assert again._state.adding is False
    again.save(force_update=True)


def test_an_insert_takes_whatever_has_the_values_of_its_fields():
    row = ToolCall(call_id=str(uuid4()), requested_at=datetime.now(UTC), input={"a": 1})
    INSERT.many([SimpleNamespace(**stored(row))])
    assert stored(ToolCall.objects.get(call_id=row.call_id)) == stored(row)
