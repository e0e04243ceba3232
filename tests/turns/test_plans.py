"""How the database finds what a turn asks for: by an index that narrows, never by reading a table that grows."""

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction

from governance.doors import database_door
from tests.past import Past, plant
from tests.turns.support import Stage, in_database
from turns import runtime, selectors, store
from turns.attendance import viewers
from turns.models import Turn
from turns.processes import recovery
from turns.testing import call, text

GROWING = {
    "governance_approval",
    "governance_toolcall",
    "turns_cancelrequest",
    "turns_conversation",
    "turns_deadlineorder",
    "turns_event",
    "turns_message",
    "turns_operation",
    "turns_turn",
}
PLANTED = {
    "governance_toolcall",
    "turns_conversation",
    "turns_event",
    "turns_message",
    "turns_turn",
}
_KINDS = ("SELECT", "INSERT", "UPDATE", "DELETE")
Plan = dict[str, Any]


class Statements:
    """Remembers each statement of the database thread once, with the parameters it had first."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(_KINDS):
            self.params.setdefault(sql, params[0] if many else params)
        return execute(sql, params, many, context)

    @database_door
    def listen(self) -> None:
        connection.execute_wrappers.append(self)

    @database_door
    def scans(self) -> dict[str, str]:
        """Stop listening, and return how a growing table is read through, by the statement that does so."""
        connection.execute_wrappers.remove(self)
        find = _scan_of_sqlite if connection.vendor == "sqlite" else _scan_of_postgres
        found = {sql: find(sql, params) for sql, params in self.params.items()}
        return {sql: scan for sql, scan in found.items() if scan}


def partial_indexes() -> set[str]:
    """Those that hold few rows however many there are, so that reading one through is no scan."""
    metas = [model._meta for model in apps.get_models()]
    return {
        index.name
        for meta in metas
        for index in (*meta.indexes, *meta.constraints)
        if getattr(index, "condition", None) is not None
    }


def _scan_of_sqlite(sql: str, params: Any) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
        steps = [row[3] for row in cursor.fetchall()]
    return next((step for step in steps if _is_scan_of_sqlite(step, sql)), "")


def _is_scan_of_sqlite(step: str, sql: str) -> bool:
    found = re.match(r"SCAN (\w+)(?:.* INDEX (\w+))?", step)
    if not found:
        return False
    name, index = found.groups()
    aliased = re.search(rf'"(\w+)" {name}\b', sql)
    return (aliased[1] if aliased else name) in GROWING and index not in partial_indexes()


def _scan_of_postgres(sql: str, params: Any) -> str:
    with transaction.atomic(), connection.cursor() as cursor:
        for way in ("seqscan", "hashjoin", "mergejoin"):  # what still scans then has no other way
            cursor.execute(f"SET LOCAL enable_{way} = off")
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
        [[plan]] = cursor.fetchall()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    scans = (node for node in _nodes(plan[0]["Plan"]) if _is_scan_of_postgres(node))
    return next((f"{node['Node Type']} on {node['Relation Name']}" for node in scans), "")


def _nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


def _is_scan_of_postgres(node: Plan) -> bool:
    if node.get("Relation Name") not in GROWING:
        return False
    if node["Node Type"] == "Seq Scan":
        return True
    if node["Relation Name"] not in PLANTED:  # so short that its order in any index is as good
        return False
    is_narrow = "Index Cond" in node or node.get("Index Name") in partial_indexes()
    return node["Node Type"] in ("Index Scan", "Index Only Scan") and not is_narrow


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM turns_message WHERE role = %s",
        "SELECT count(*) FROM turns_turn WHERE user_message = %s",
        "SELECT id FROM turns_event WHERE type = %s ORDER BY id",
    ],
)
@pytest.mark.django_db
def test_a_scan_is_found(query):
    find = _scan_of_sqlite if connection.vendor == "sqlite" else _scan_of_postgres
    assert find(query, ["x"])
    assert not find("SELECT id FROM turns_turn WHERE status = %s", ["x"])


async def _plain(stage: Stage) -> None:
    stage.play([call("c1", "quick"), call("c2", "failing")], [text("done")])
    assert (await stage.run("go", client_id="m1")).status == "completed"
    stage.play([text("more")])
    assert (await stage.run()).status == "completed"


async def _cancelled(stage: Stage) -> None:
    stage.play([call("c1", "held"), call("c2", "held")])
    turn_id = await stage.say()
    behind = await stage.say("behind it")
    await stage.running(turn_id, "c1", "c2")
    await stage.cancel_call(turn_id, "c1")
    await stage.cancel(behind)
    await stage.cancel(turn_id)
    await stage.ended(turn_id)


async def _decided(stage: Stage) -> None:
    stage.play([call("c1", "asked"), call("c2", "asked")], [text("done")])
    turn_id = await stage.say()
    await stage.asked(turn_id, "c1", "c2")
    await stage.decide(turn_id, "c1")
    await stage.decide(turn_id, "c2", decision="deny")
    assert (await stage.ended(turn_id)).status == "completed"


async def _read(stage: Stage) -> None:
    stage.play([call("c1", "held")])
    turn_id = await stage.say()
    await stage.running(turn_id, "c1")
    await selectors.snapshot(conversation_id=stage.id, user=stage.user)
    await selectors.list_conversations(user=stage.user)
    await selectors.active_turns(user=stage.user)
    await selectors.history(conversation_id=stage.id, user=stage.user)
    await stage.cancel(turn_id)
    await stage.ended(turn_id)


async def _looked_after(stage: Stage) -> None:
    """What every process does all the time, besides."""
    process = (await runtime.ensure_started()).process
    live = [uuid.uuid4()]
    await in_database(lambda: recovery.sweep(process, live))
    await in_database(lambda: store.open_orders(live))
    await in_database(store.waiting_conversations)
    await in_database(store.dispatch_again)
    await in_database(lambda: viewers.reconcile(process, {"socket": stage.id}))
    await in_database(viewers.end_overdue)
    await in_database(viewers.forget_lost)


async def _with_a_past(stage: Stage) -> None:
    """Make the tables long: PostgreSQL reads what is short in any order."""
    stage.play([call("c0", "quick")], [text("long ago")])
    await stage.run("once")

    def fill() -> None:
        with connection.cursor() as cursor:
            past = Past(conversations=300, turns_each=5)
            plant(cursor.execute, connection.vendor, stage.id, past)
            if connection.vendor == "postgresql":
                cursor.execute("ANALYZE")

    await in_database(fill)
    assert await in_database(Turn.objects.count) == 1501


async def test_no_statement_of_a_turn_reads_a_growing_table_through(
    stage: Stage, settings: Any
) -> None:
    settings.GOVERNANCE_APPROVAL = {}
    await _with_a_past(stage)
    statements = Statements()
    await statements.listen()
    for scene in (_plain, _cancelled, _decided, _read, _looked_after):
        await scene(stage)
    scans = await statements.scans()
    assert len(statements.params) > 80
    assert scans == {}
