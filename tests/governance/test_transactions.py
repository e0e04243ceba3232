"""Transactions begun and committed by the database's own library come to the same as Django's, whatever happens in them."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from sqlite3 import connect
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from governance.db import without_lock_wait
from governance.models import ToolPolicy
from governance.transactions import atomic
from turns.models import Repair

pytestmark = pytest.mark.django_db(transaction=True)

steps = st.recursive(
    st.sampled_from(["write", "promise", "fail", "roll back", "refuse", "close"]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)
BY_DJANGO = transaction.atomic


class _Failed(Exception):
    pass


class _Story:
    """Plays steps: a list is a block, whose failure is caught outside of it. Remembers what it has come to."""

    def __init__(self, *blocks: Callable[[], Any]) -> None:
        self.blocks = blocks  # by turns, the outermost block has the first one
        self.told: list[str] = []
        self.written = 0

    def play(self, block: list[Any], depth: int = 0) -> None:
        try:
            with self.blocks[depth % len(self.blocks)]():
                for step in block:
                    if isinstance(step, list):
                        self.play(step, depth + 1)
                    else:
                        self._take(step)
        except Exception as error:  # noqa: BLE001 - which one is what is compared
            self.told.append(f"{depth}: {type(error).__name__} {error}")

    def _take(self, step: str) -> None:
        self.written += 1
        match step:
            case "write":
                ToolPolicy.objects.create(tool_name=f"tool {self.written}", timeout_ms=1)
            case "promise":
                transaction.on_commit(partial(self.told.append, f"promise {self.written}"))
            case "fail":
                raise _Failed(f"step {self.written}")
            case "roll back":
                transaction.set_rollback(True)
            case "refuse":
                for _ in range(2):
                    ToolPolicy.objects.create(tool_name="the same twice", timeout_ms=1)
            case "close":
                connection.close()

    def outcome(self) -> tuple[Any, ...]:
        """Everything that shows afterwards."""
        state = (
            connection.in_atomic_block,
            connection.get_autocommit(),
            connection.needs_rollback,
            connection.closed_in_transaction,
            connection.atomic_blocks,
            connection.savepoint_ids,
            connection.run_on_commit,
        )
        rows = sorted(ToolPolicy.objects.values_list("tool_name", flat=True))
        return rows, self.told, state


@pytest.mark.parametrize("blocks", [(atomic,), (atomic, BY_DJANGO), (BY_DJANGO, atomic)])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=st.lists(steps, max_size=5))
def test_any_story_comes_to_the_same(blocks, story):
    def outcome(*blocks: Callable[[], Any]) -> Any:
        ToolPolicy.objects.all().delete()
        told = _Story(*blocks)
        told.play(story)
        told.play(["write", "promise"])  # it is as good as new
        return told.outcome()

    assert outcome(*blocks) == outcome(BY_DJANGO)


def test_a_commit_that_is_refused_is_rolled_back():
    """A reference to nothing shows when all is to be stored."""
    promises: list[str] = []

    def store() -> None:
        with atomic():
            transaction.on_commit(partial(promises.append, "kept"))
            Repair.objects.create(conversation_id=uuid4(), at=timezone.now())

    with pytest.raises(IntegrityError):
        store()
    assert not promises
    assert not connection.in_atomic_block
    assert connection.get_autocommit()
    with atomic():
        assert not Repair.objects.exists()


def test_a_file_that_another_process_locks_is_refused_with_the_error_of_django():
    if connection.vendor != "sqlite":
        pytest.skip("a server locks rows")
    with (
        closing(connect(connection.settings_dict["NAME"], isolation_level=None)) as other,
        without_lock_wait(),
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError, match="locked"), atomic():
            pytest.fail("It has begun.")
        assert not connection.in_atomic_block
        other.execute("ROLLBACK")
        with atomic():
            assert connection.in_atomic_block
    assert connection.errors_occurred is False


def test_who_listens_to_statements_hears_of_it():
    with CaptureQueriesContext(connection) as asked, atomic():
        ToolPolicy.objects.exists()
    said = [query["sql"].split()[0] for query in asked]
    assert said == ["BEGIN", "SELECT", "COMMIT"]


def test_what_begins_before_somebody_listens_ends_as_well():
    with atomic():
        connection.force_debug_cursor = True
        ToolPolicy.objects.create(tool_name="probe", timeout_ms=1)
    connection.force_debug_cursor = False
    assert connection.get_autocommit()
    assert ToolPolicy.objects.exists()
