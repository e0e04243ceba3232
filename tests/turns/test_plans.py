"""How much the database reads for a turn: little, however much is stored of turns that are over."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from threading import local
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.db import DatabaseError, connection, transaction
from django.db.backends.utils import CursorWrapper
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from console import exports
from console.lists import CappedPaginator
from governance.db import run_in_pool_thread
from governance.models import Approval, ToolCall
from tests.bulk_history import BulkHistory, insert_history
from tests.turns.row_factory import RowFactory
from tests.turns.support import ChatDriver, in_database
from turns import selectors, services
from turns.endings import recovery
from turns.models import CancelRequest, DeadlineOrder, Event, Message, Operation, Turn
from turns.presence import viewers
from turns.queueing import queue
from turns.running import runtime, store
from turns.storage import retention
from turns.testing import call, text

CONVERSATIONS, TURNS_EACH = 400, 2
PAST = CONVERSATIONS * TURNS_EACH
GROWING = (Approval, CancelRequest, DeadlineOrder, Event, Message, Operation, ToolCall, Turn)
FEW = PAST // 2  # rows that a statement may look at
_STEPS_OF_A_ROW = 3  # of SQLite's machine, at least, to look at one and go on to the next
_KINDS = ("SELECT", "INSERT", "UPDATE", "DELETE")
Plan = dict[str, Any]


class Readings:
    """Runs each statement once more, before it is run, and counts what it reads."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._thread = local()

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        is_reading = getattr(self._thread, "is_reading", False)
        if not is_reading and sql not in self.rows and sql.startswith(_KINDS):
            self._thread.is_reading = True
            self.rows[sql] = rows_read(sql, params[0] if many else params)
            self._thread.is_reading = False
        return execute(sql, params, many, context)

    def of_all_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Read along with every connection: some selectors have threads of their own, with connections of their own."""
        execute_plainly = CursorWrapper._execute_with_wrappers

        def execute(cursor: Any, sql: str, params: Any, many: bool, executor: Any) -> Any:
            def go_on(sql: str, params: Any, many: bool, context: Any) -> Any:
                return execute_plainly(cursor, sql, params, many, executor)

            return self(go_on, sql, params, many, {})

        monkeypatch.setattr(CursorWrapper, "_execute_with_wrappers", execute)

    @property
    def many(self) -> dict[str, int]:
        """What has read more than a few rows."""
        return {sql: rows for sql, rows in self.rows.items() if rows > FEW}


def rows_read(sql: str, params: Any) -> int:
    """Execute a statement, undo it, and return how many rows of tables and indexes it went through, about."""
    count = _rows_of_sqlite if connection.vendor == "sqlite" else _rows_of_postgres
    try:
        with transaction.atomic():
            rows = count(sql, params)
            transaction.set_rollback(True)
    except DatabaseError:  # it will fail again, where that is meant to happen
        return 0
    return rows


def _rows_of_sqlite(sql: str, params: Any) -> int:
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.connection.set_progress_handler(step, 1)
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql, params)
            columns = len(cursor.description or ())
            found = len(cursor.fetchall())
    finally:
        connection.connection.set_progress_handler(None, 1)
    return (steps - found * columns) // _STEPS_OF_A_ROW


def _rows_of_postgres(sql: str, params: Any) -> int:
    with connection.cursor() as cursor:
        for way in ("seqscan", "hashjoin", "mergejoin"):  # the best of ways where a table is short
            cursor.execute(f"SET LOCAL enable_{way} = off")
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", params)
        [[plan]] = cursor.fetchall()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    return sum(_rows_of(node) for node in _nodes(plan[0]["Plan"]))


def _nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


def _rows_of(node: Plan) -> int:
    if not node["Node Type"].endswith("Scan"):
        return 0
    each = sum(rows for name, rows in node.items() if name.startswith("Rows Removed"))
    return round((node["Actual Rows"] + each) * node["Actual Loops"])


@pytest.fixture
async def late_chat(chat: ChatDriver, settings: Any) -> ChatDriver:
    """Make the tables long, each that grows with what is said and done."""
    settings.GOVERNANCE_APPROVAL = {}
    chat.use_script([call("c0", "quick")], [text("long ago")])
    await chat.run("once")
    other = await services.create_conversation(user=chat.user)
    busy = ChatDriver(user=chat.user, conversation_id=other.id, sink=chat.sink)
    chat.use_script([call("c0", "asked_held")])
    turn_id = await busy.say()
    await busy.asked(turn_id, "c0")
    await busy.decide(turn_id, "c0")
    await busy.running(turn_id, "c0")
    await busy.cancel(turn_id, op_id="once")
    await busy.ended(turn_id)

    def fill() -> None:
        order = DeadlineOrder(
            turn_id=turn_id, tool_id="c0", timeout_ms=1, settled_at=timezone.now()
        )
        order.save()
        with connection.cursor() as cursor:
            for number, template in enumerate((chat.id, busy.id)):
                history = BulkHistory(
                    conversations=CONVERSATIONS, turns_each=TURNS_EACH, first=number * 100_000
                )
                insert_history(cursor.execute, connection.vendor, template, history)
            if connection.vendor == "postgresql":
                # Whether an index alone can answer depends on the last vacuum, which otherwise comes at any moment.
                cursor.execute("VACUUM ANALYZE")

    await in_database(fill)
    for model in GROWING:
        assert await in_database(model.objects.count) >= PAST, model
    return chat


ALL_IS_READ = (
    "SELECT id FROM turns_message WHERE role = %s",
    "SELECT count(*) FROM turns_turn WHERE user_message = %s",
    "SELECT id FROM turns_event WHERE type = %s ORDER BY id",
    "UPDATE turns_turn SET source = 'x' WHERE source <> %s",
)


async def test_a_statement_that_reads_everything_is_found(late_chat: ChatDriver) -> None:
    for statement in ALL_IS_READ:
        assert await in_database(partial(rows_read, statement, ["x"])) >= PAST, statement
    by_index = "SELECT id FROM turns_turn WHERE status = %s"
    assert await in_database(partial(rows_read, by_index, ["x"])) < FEW
    assert await in_database(partial(rows_read, by_index, ["completed"])) >= PAST


async def _plain(chat: ChatDriver) -> None:
    chat.use_script([call("c1", "quick"), call("c2", "failing")], [text("done")])
    assert (await chat.run("go", client_id="m1")).status == "completed"
    chat.use_script([text("more")])
    assert (await chat.run()).status == "completed"


async def _cancelled(chat: ChatDriver) -> None:
    chat.use_script([call("c1", "held"), call("c2", "held")])
    turn_id = await chat.say()
    behind = await chat.say("behind it")
    await chat.running(turn_id, "c1", "c2")
    await chat.cancel_call(turn_id, "c1")
    await chat.cancel(behind)
    await chat.cancel(turn_id)
    await chat.ended(turn_id)


async def _decided(chat: ChatDriver) -> None:
    chat.use_script([call("c1", "asked"), call("c2", "asked")], [text("done")])
    turn_id = await chat.say()
    await chat.asked(turn_id, "c1", "c2")
    await chat.decide(turn_id, "c1")
    await chat.decide(turn_id, "c2", decision="deny")
    assert (await chat.ended(turn_id)).status == "completed"


async def _read(chat: ChatDriver) -> None:
    turn_id = await chat.begin([call("c1", "held")])
    await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    await selectors.list_conversations(user=chat.user, limit=20)
    await selectors.active_turns(user=chat.user)
    await selectors.history(conversation_id=chat.id, user=chat.user)
    await chat.cancel(turn_id)
    await chat.ended(turn_id)


async def _looked_after(chat: ChatDriver) -> None:
    """What every process does all the time, besides."""
    process = (await runtime.ensure_started()).process
    live = [uuid.uuid4()]
    await in_database(lambda: recovery.sweep(process, lambda: live))
    await in_database(lambda: store.pending(live, ["1"]))
    await in_database(queue.waiting_conversations)
    await in_database(lambda: viewers.reconcile(process, {"socket": chat.id}))
    await in_database(viewers.end_overdue)
    await in_database(viewers.forget_lost)


async def _pruned(chat: ChatDriver) -> None:
    def prune() -> None:
        turns = Turn.objects.filter(conversation=chat.id).order_by("number")
        few = list(turns.values_list("pk", flat=True)[:2])  # each row that goes is read, too
        Turn.objects.filter(pk__in=few).update(ended_at=timezone.now() - timedelta(days=100))
        assert retention.prune(timedelta(days=90)).turns == len(few)

    await in_database(prune)


# The lists of the admin that grow, and what is asked of them along an index.
LISTS = {
    "governance_toolcall": ["", "when=24h", "happened=asked", "tool=nothing", "q={turn}", "q=zzzz"],
    "governance_approval": ["", "when=24h", "q={turn}"],
    "turns_turn": ["", "when=24h", "happened=active", "q={turn}"],
    "turns_conversation": ["", "when=24h", "q={turn}"],
    "turns_cancelrequest": ["", "when=24h", "q={turn}"],
    "turns_cancelledturn": ["", "when=24h", "q={turn}"],
    "turns_repair": ["", "when=24h", "q={turn}"],
}


def open_lists(client: Client, lists: Mapping[str, Sequence[str]], **facts: Any) -> None:
    """Open each list with each of its queries, in which these facts stand."""
    for name, queries in lists.items():
        for query in queries:
            address = f"{reverse(f'admin:{name}_changelist')}?{query.format(**facts)}"
            assert client.get(address).status_code == 200, address


async def test_no_statement_of_a_turn_reads_all_of_a_long_conversation(
    chat: ChatDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat.use_script([call("c1", "quick")], [text("long ago")])
    await chat.run("once")
    history = BulkHistory(conversations=1, turns_each=PAST)

    def fill() -> None:
        with connection.cursor() as cursor:
            insert_history(cursor.execute, connection.vendor, chat.id, history)
            if connection.vendor == "postgresql":
                # Whether an index alone can answer depends on the last vacuum, which otherwise comes at any moment.
                cursor.execute("VACUUM ANALYZE")

    await in_database(fill)
    chat.id = history.conversation_id()

    async def go_on() -> None:
        chat.use_script([call("c1", "quick")], [text("done")])
        await chat.sink.until_ended(await chat.say())
        turn_id = await chat.begin([call("c1", "held")])
        await _looked_after(chat)
        await chat.cancel(turn_id)
        await chat.sink.until_ended(turn_id)

    await go_on()  # the first one reads it all
    readings = Readings()
    readings.of_all_threads(monkeypatch)
    await go_on()
    assert len(readings.rows) > 15
    assert readings.many == {}


async def test_no_list_of_the_admin_reads_what_is_over(
    late_chat: ChatDriver, client: Client, admin_user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CappedPaginator, "most", 100)
    readings = Readings()

    def look() -> None:
        client.force_login(admin_user)
        turn = CancelRequest.objects.order_by("pk")[0].turn
        with connection.execute_wrapper(readings):
            open_lists(client, LISTS, turn=turn.pk)

    await run_in_pool_thread(look)()
    assert len(readings.rows) > len(LISTS)
    assert readings.many == {}


# Those that begin with the last day.
LONG_LISTS = (
    "governance_toolcall",
    "governance_approval",
    "turns_turn",
    "turns_cancelrequest",
    "turns_cancelledturn",
)


def filters_of_a_day(name: str, user: Any, typed: Mapping[str, Any]) -> Iterator[str]:
    """Each choice of each filter of a list; `typed` has what people type."""
    request = RequestFactory().get("/")
    request.user = user
    model_admin = admin.site._registry[apps.get_model(name.replace("_", ".", 1))]
    changelist = model_admin.get_changelist_instance(request)
    for spec in changelist.filter_specs:
        parameter = str(getattr(spec, "parameter_name", ""))
        if parameter in typed:
            yield f"{parameter}={typed[parameter]}"
        elif parameter != "when":
            chosen = (
                choice["query_string"].removeprefix("?") for choice in spec.choices(changelist)
            )
            yield from filter(None, chosen)


TIMES = {Turn: "queued_at"} | dict.fromkeys((ToolCall, Approval, CancelRequest), "requested_at")
OF_TODAY = 5


def _date_back() -> None:
    """Let all but a few rows of each list be of last month."""
    past = timezone.now() - timedelta(days=30)
    for model, field in TIMES.items():
        keep = list(model.objects.order_by("pk").values_list("pk", flat=True)[:OF_TODAY])
        model.objects.exclude(pk__in=keep).update(**{field: past})
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")  # what was moved stays in the indexes until then


async def test_no_filter_of_the_last_day_reads_what_is_older(
    late_chat: ChatDriver, client: Client, admin_user: Any
) -> None:
    readings = Readings()

    def queries() -> dict[str, list[str]]:
        _date_back()
        client.force_login(admin_user)
        typed = {
            "user": late_chat.user.username,
            "agent": "assistant",
            "process": Turn.objects.all()[0].owner,
        }
        return {name: [*filters_of_a_day(name, admin_user, typed)] for name in LONG_LISTS}

    def look(lists: Mapping[str, Sequence[str]]) -> None:
        with connection.execute_wrapper(readings):
            open_lists(client, lists)

    for name, of_list in (await run_in_pool_thread(queries)()).items():
        assert len(of_list) > 10
        for query in (
            of_list
        ):  # a thread's function has to end in time, and all lists take minutes on a busy machine
            await run_in_pool_thread(look)({name: [query]})
    assert len(readings.rows) > 50
    assert readings.many == {}


async def test_no_batch_of_an_export_reads_the_others(
    late_chat: ChatDriver, client: Client, admin_user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "CONTENT_BATCH", 20)
    readings, long = Readings(), set()

    def export() -> None:
        client.force_login(admin_user)
        for name in LISTS:
            answer: Any = client.get(reverse(f"admin:{name}_export", args=["csv"]))
            parts = iter(answer.streaming_content)
            next(parts)  # the names of the columns
            with connection.execute_wrapper(readings):
                batches = [next(parts, b"") for _ in range(3)]
            if all(batches):
                long.add(name)

    await run_in_pool_thread(export)()
    assert long == LISTS.keys() - {"turns_repair"}  # there are none
    assert len(readings.rows) > 2 * len(LISTS)
    assert readings.many == {}


async def test_no_statement_of_a_turn_reads_what_is_over(
    late_chat: ChatDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = Readings()
    readings.of_all_threads(monkeypatch)
    for scene in (_plain, _cancelled, _decided, _read, _looked_after, _pruned):
        await scene(late_chat)
    assert len(readings.rows) > 80
    assert readings.many == {}


@pytest.mark.django_db(transaction=True)
def test_a_long_queue_costs_a_claim_in_proportion_to_its_length(ada: Any) -> None:
    """Were each waiting turn compared with the others, twice as many would cost four times as much."""

    def cost_of_looking() -> int:
        readings = Readings()
        with connection.execute_wrapper(readings):
            queue.waiting_conversations()
        return sum(readings.rows.values())

    def queue_more() -> None:
        for _ in range(100):
            RowFactory(ada).turn("queued")

    queue_more()
    few = cost_of_looking()
    queue_more()
    assert cost_of_looking() < 3 * few
