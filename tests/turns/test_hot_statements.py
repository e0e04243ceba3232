"""Every prepared statement, for whatever values: it reads and writes the rows that its queryset would (slow path)."""

import copy
import gc
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import AbstractUser
from django.db import DatabaseError, models, transaction
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from governance.core.calls import CallStatus
from governance.models import McpServer
from governance.prepared_statements import Insert, Select, Several, Update
from tests.turns.row_factory import RowFactory, make_process, said, use
from tests.turns.slow_path import prepared_statements, slow_statements
from turns.core.events import TurnError
from turns.core.turns import TurnStatus
from turns.events import log
from turns.models import (
    Acknowledgement,
    Agent,
    CancelRequest,
    Conversation,
    MessageTally,
    Process,
    Turn,
)
from webchat import api_tokens

pytestmark = pytest.mark.django_db

STATEMENTS = prepared_statements()


@pytest.fixture
def world(ada: AbstractUser) -> None:
    """Conversations with turns, messages, calls and requests in every state that there is."""
    process = make_process(ended_at=timezone.now())
    for title in ("", "planted"):
        factory = RowFactory(ada)
        Conversation.objects.filter(pk=factory.id).update(title=title)
        parent: Turn | None = None
        for status in TurnStatus:
            if status == ("running" if title else "cancelling"):  # one live turn at most
                continue
            turn = factory.turn(
                status,
                parent=parent,
                is_detached=bool(title),
                usage={"total": 3},
                client_id=f"of {status}",
            )
            factory.message(turn, "user", said("question"))
            factory.message(turn, "assistant", said("an"), use("a"), is_streaming=not title)
            request = CancelRequest.objects.create(
                turn=turn, source="button", mode="now", requested_at=timezone.now()
            )
            Acknowledgement.objects.create(request=request, turn=turn, said="stop", source="typed")
            parent = turn
        for call_status in CallStatus:
            factory.call(turn, f"c {call_status}", call_status, input={"ü": [1, None]})
        log.append(factory.conversation, turn.pk, TurnError(code="planted", message="planted"))
    Turn.objects.filter(status="running").update(owner=process, epoch=1)
    make_process()
    MessageTally.objects.create(user_id=ada.pk, times=[[1, 2]])
    Agent.objects.create(name="planted")
    McpServer.objects.create(name="planted", command="planted")
    api_tokens.issue(user=ada, name="planted")


def stored(model: Any) -> list[str]:
    """The rows of a model, but for the keys that the database makes."""
    names = [
        field.attname
        for field in model._meta.concrete_fields
        if not isinstance(field, models.AutoField)
    ]
    return sorted(repr(values) for values in model._base_manager.values_list(*names))


def seen(row: Any, *, since: datetime) -> Any:
    """What was read, with what came along; moments of the database's clock are all one."""
    if isinstance(row, models.Model):
        return {
            name: seen(value, since=since)
            for name, value in vars(row).items()
            if name not in ("_state", "_prefetched_objects_cache")
        } | {
            f"related {name}": seen(value, since=since)
            for name, value in row._state.fields_cache.items()
        }
    if isinstance(row, tuple):
        return tuple(seen(value, since=since) for value in row)
    return "now" if isinstance(row, datetime) and row > since else row


def outcome(run: Callable[[], Any], *, model: Any) -> tuple[Any, list[str]]:
    """What something returns or raises, and the rows of a model after it; then it is undone."""
    with transaction.atomic():
        try:
            with transaction.atomic():
                came = run()
        except DatabaseError as error:
            came = type(error)
        rows = stored(model) if model else []
        transaction.set_rollback(True)
    return came, rows


def values_of(field: Any, name: str) -> "st.SearchStrategy[Any]":
    """Values of a place: such as there are in the database, and others of their type."""
    if isinstance(field, Several):
        return st.lists(values_of(field.field, name), max_size=5)
    known: list[Any] = []
    if hasattr(field, "model"):
        known = list(field.model._base_manager.values_list(field.attname, flat=True))
    match field:
        case models.UUIDField() | models.ForeignKey(target_field=models.UUIDField()):
            known += [
                pk
                for m in (Conversation, Turn, Process)
                for pk in m.objects.values_list("pk", flat=True)
            ]
            known += [UUID(int=1)] + [None] * (name == "process_id")
        case models.DateTimeField():
            known += [timezone.now() - timedelta(hours=1)]
        case models.JSONField():
            known += [{}, [], [{"type": "text", "text": "ü"}]]
        case models.BooleanField():
            known += [True, False]
        case models.IntegerField():
            known += [0, 1, 2, 2**31 - 1]
        case models.CharField() | models.TextField():
            known += ["", "ü"]
    unique = {repr(value): value for value in known}
    return st.sampled_from(list(unique.values()))


def of_kind(*kinds: type) -> list[str]:
    return [name for name, statement in STATEMENTS.items() if isinstance(statement, kinds)]


def check(name: str, run: Callable[..., Any], *, model: Any = None) -> None:
    """Compare both ways for many values."""
    statement: Any = STATEMENTS[name]
    places = {place: values_of(field, place) for place, field in statement.places.items()}

    @settings(max_examples=10)
    @given(values=st.fixed_dictionaries(places))
    def compare(values: dict[str, Any]) -> None:
        fast = outcome(lambda: run(statement, values), model=model)
        with slow_statements():
            assert outcome(lambda: run(statement, values), model=model) == fast

    compare()


def test_a_select_reads_what_its_queryset_does(world: None, subtests: pytest.Subtests):
    since = timezone.now()
    for name in of_kind(Select):
        with subtests.test(name):
            check(name, lambda select, of: [seen(row, since=since) for row in select.all(**of)])


def test_an_update_writes_what_its_queryset_does(world: None, subtests: pytest.Subtests):
    for name in of_kind(Update):
        statement: Any = STATEMENTS[name]
        queryset, _changes = statement._build(**dict.fromkeys(statement.places, UUID(int=1).hex))
        with subtests.test(name):
            check(name, lambda update, of: update.run(**of), model=queryset.model)
            check(name, lambda update, of: update.run_each([of, of]), model=queryset.model)


def test_an_insert_stores_what_its_model_would(world: None, subtests: pytest.Subtests):
    for name in of_kind(Insert):
        for many in (False, True):
            with subtests.test(name, many=many):
                put_each_row_back(STATEMENTS[name], many=many)


def put_each_row_back(statement: Any, *, many: bool) -> None:
    """Each planted row is taken away and put back."""
    model = statement._model
    planted, before = list(model._base_manager.all()), stored(model)
    assert planted

    def put_back(row: Any) -> None:
        same = model._base_manager.filter(pk=row.pk)
        same._raw_delete(same.db)
        again = copy.deepcopy(row)
        again._state.adding = True
        if isinstance(model._meta.pk, models.AutoField):
            again.pk = None
        if many:
            statement.many([again])
        else:
            statement.one(again)

    for row in planted:
        assert outcome(partial(put_back, row), model=model) == (None, before)
        with slow_statements():
            assert outcome(partial(put_back, row), model=model) == (None, before)


def test_no_statement_is_left_out():
    """However one is made: what stands in no module would be compared by nobody."""
    ours = {"governance", "turns", "webchat"}
    alive = [
        thing
        for thing in gc.get_objects()
        # By its type: to ask a lazy object for its class is to make it.
        if issubclass(type(thing), Select | Update)
        and thing._build.__module__.split(".")[0] in ours
    ]
    assert {id(statement) for statement in alive} <= {id(s) for s in STATEMENTS.values()}
