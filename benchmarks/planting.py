"""Plants a history into a site's database, in bulk and while no server runs. Run it with the settings of the site:

python -m benchmarks.planting conversation ID TURNS    prints the id of a conversation of that many turns like ID's
python -m benchmarks.planting calls COUNT              a month of calls of all kinds, with all related rows
"""

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import django
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection, models, transaction
from django.utils import timezone

if __name__ == "__main__":
    django.setup()  # before the models below are imported

from governance import activity, registry
from governance.models import Activity, Approval, ToolCall
from tests.bulk_history import BulkHistory, insert_history
from turns.models import Agent, CancelRequest, Conversation, Event, Message, Process, Repair, Turn

DAYS = 30
CALLS_OF_A_TURN = 3
TURNS_OF_A_CONVERSATION = 10
DAYS_WITH_CONTENTS = 10  # messages and events of older turns are gone, as after `prune`
_EVENTS = ("turn_start", "tool_start", "tool_result", "turn_end")
_BY_ADA = {"ended_by_reason": "user", "ended_by_source": "button", "ended_by_name": "ada"}
_TIMEOUT = {"error_type": "timeout", "ended_by_reason": "timeout", "is_error": True}
# How calls and turns end, with cumulative shares.
_CALLS: Sequence[tuple[float, dict[str, Any]]] = (
    (0.930, {"status": "succeeded", "disposition": "settled"}),
    (0.970, {"status": "failed", "error_type": "execution_error", "is_error": True}),
    (0.985, {"status": "timed_out", "limit_reached": "total", **_TIMEOUT}),
    (0.998, {"status": "cancelled", "error_type": "cancelled", "is_error": True, **_BY_ADA}),
    (0.999, {"status": "abandoned", "limit_reached": "idle", **_TIMEOUT}),
    (1.000, {"status": "repaired", "error_type": "interrupted", "is_error": True}),
)
# As many acts as calls, far more than on any real site.
_ACTS = (
    ("limits", "change"),
    ("cancel", "cancel"),
    ("decision", "approve"),
    ("extension", "change"),
)
_TURNS: Sequence[tuple[float, dict[str, Any]]] = (
    (0.930, {"status": "completed"}),
    (0.970, {"status": "cancelled", **_BY_ADA}),
    (0.980, {"status": "timed_out", "ended_by_reason": "timeout"}),
    (0.995, {"status": "failed", "error_code": "model_error"}),
    (1.000, {"status": "interrupted"}),
)


def main() -> None:
    """Plant the rows that the command line names."""
    match sys.argv[1:]:
        case ["conversation", template, turns]:
            print(plant_conversation(UUID(template), int(turns)))
        case ["calls", count]:
            plant_calls(int(count))
        case _:
            sys.exit(__doc__)


def plant_conversation(template: UUID, turns: int) -> UUID:
    """Multiply the one turn of a conversation; return the id of the new conversation."""
    history = BulkHistory(conversations=1, turns_each=turns, first=1_000_000 * turns)
    with transaction.atomic(), connection.cursor() as cursor:
        insert_history(cursor.execute, connection.vendor, template, history)
    return history.conversation_id()


def plant_calls(count: int) -> None:
    """Store `count` calls, evenly over the last month. One day is generated, and the others are copies of it."""
    turns_a_day = count // CALLS_OF_A_TURN // DAYS
    tools = sorted(tool.name for tool in registry)[:12]
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous = OFF")
        cursor.execute("PRAGMA cache_size = -262144")  # KiB
    day = _Day(turns_a_day, tools=tools)
    for number in range(turns_a_day):
        day.add_turn(number)
    with transaction.atomic():
        day.store()
        for model in (Conversation, Turn, ToolCall, Activity, Approval, CancelRequest, Repair):
            _copy(model, days=DAYS)
        for model_with_contents in (Message, Event):
            _copy(model_with_contents, days=DAYS_WITH_CONTENTS)
    call_command("roll_up_durations", days=DAYS)


def _copy(model: type[models.Model], *, days: int) -> None:
    """Copy the rows of the one day into the days before it."""
    fields = [
        field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)
    ]
    names = ", ".join(f'"{field.column}"' for field in fields)
    values = ", ".join(_copied(field) for field in fields)
    table = model._meta.db_table
    numbers = f"WITH RECURSIVE days(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM days WHERE n < {days - 1})"
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE TEMPORARY TABLE one_day AS SELECT * FROM "{table}"')
        cursor.execute(
            f'INSERT INTO "{table}" ({names}) {numbers} SELECT {values} FROM days CROSS JOIN one_day'
        )
        cursor.execute("DROP TABLE one_day")


def _copied(field: Any) -> str:
    """Return SQLite's expression for a column of a copy: n days earlier, and n as the beginning of its ids."""
    column = f'"{field.column}"'
    if isinstance(field, models.DateTimeField):
        return f"strftime('%Y-%m-%d %H:%M:%f', {column}, '-' || n || ' days') || '000'"
    is_id = field.primary_key and isinstance(field, models.UUIDField)
    if is_id or field.related_model in (Turn, Conversation) or field.name in ("group", "scope"):
        return f"substr('0' || n, -2) || substr({column}, 3)"
    return column


class _Day:
    """Makes the rows of one day, the same ones each time, and keeps them until they are stored."""

    def __init__(self, count: int, *, tools: Sequence[str]) -> None:
        self._count = count
        self._tools = tools
        self._random = Random(1)
        self._now = timezone.now()
        self._users = [
            get_user_model().objects.create_user(username=f"user{number}") for number in range(20)
        ]
        agents = [Agent(name=f"agent{number}") for number in range(5)]
        self._agents = [agent.name for agent in Agent.objects.bulk_create(agents)]
        self._owners = [
            Process.objects.create(host="generated", pid=number, ended_at=self._now)
            for number in range(3)
        ]
        self._conversation = Conversation()
        self._rows: dict[type[models.Model], list[models.Model]] = {}

    def add_turn(self, number: int) -> None:
        """Make one turn with its calls and related rows."""
        at = self._now - timedelta(days=1 - number / self._count)
        if number % TURNS_OF_A_CONVERSATION == 0:
            self._conversation = self._keep(self._new_conversation(at))
        took_ms = self._milliseconds() + 500
        turn = self._keep(
            Turn(
                id=self._id(),
                conversation=self._conversation,
                number=number % TURNS_OF_A_CONVERSATION + 1,
                agent=self._conversation.agent,
                user_message="What is new?",
                owner=self._random.choice(self._owners),
                steps=2,
                tool_call_count=CALLS_OF_A_TURN,
                queued_at=at,
                started_at=at,
                ended_at=at + timedelta(milliseconds=took_ms),
                duration_ms=took_ms,
                **self._end(_TURNS),
            )
        )
        for position in range(CALLS_OF_A_TURN):
            self._add_call(turn, position)
        if turn.status == "cancelled":
            self._add_cancel(turn, at=at)
        if turn.status == "interrupted":
            self._keep(
                Repair(
                    conversation=self._conversation, turn=turn, tool_id="call0",
                    kind="missing_result", cause="crash", found_when="recovery", at=turn.ended_at,
                )
            )  # fmt: skip
        self._add_contents(turn)

    def store(self) -> None:
        """Store the rows, and forget them."""
        for model, rows in self._rows.items():
            model._default_manager.bulk_create(rows, batch_size=1_000)
        self._rows = {}

    def _new_conversation(self, at: datetime) -> Conversation:
        owner, agent = self._random.choice(self._users), self._random.choice(self._agents)
        return Conversation(
            id=self._id(), owner=owner, agent=agent, title="What is new?", updated_at=at
        )

    def _add_call(self, turn: Turn, position: int) -> None:
        end = self._end(_CALLS)
        ran = 30_000 if end["status"] == "timed_out" else self._milliseconds()
        call = self._keep(
            ToolCall(
                call_id=f"call{position}",
                scope=str(turn.conversation_id),
                group=str(turn.pk),
                step=1,
                position=position,
                tool_name=self._random.choice(self._tools),
                input={"url": "https://example.org/", "number": position},
                result="Nothing is new. " * 12,
                requested_at=turn.queued_at,
                started_at=turn.queued_at,
                ended_at=turn.queued_at + timedelta(milliseconds=ran),
                duration_ms=ran,
                timeout_ms=30_000,
                timeout_source="default",
                **end,
            )
        )
        kind, action = self._random.choice(_ACTS)
        by_name = f"user{self._random.randrange(20)}"
        self._keep(
            activity.act(
                kind, action, subject=call.tool_name, group=call.group,
                changes={"timeout_ms": [30_000, 60_000]}, by_name=by_name, at=turn.queued_at,
            )
        )  # fmt: skip
        if self._random.random() < 0.02:
            self._keep(
                Approval(
                    group=call.group, call_id=call.call_id, scope=call.scope, tool_name=call.tool_name,
                    definition="x", requested_at=turn.queued_at, decided_at=turn.ended_at,
                    decision="approved", by_name="ada",
                )
            )  # fmt: skip

    def _add_cancel(self, turn: Turn, *, at: datetime) -> None:
        settled_ms = self._milliseconds() // 10
        self._keep(
            CancelRequest(
                turn=turn,
                reason="user",
                source=self._random.choice(("button", "api", "typed", "voice", "admin")),
                by_name="ada",
                note="It took too long.",
                requested_at=at,
                settled_at=at + timedelta(milliseconds=settled_ms),
                settled_ms=settled_ms,
                outcome="cancelled",
                running_tools=[self._tools[0]],
            )
        )

    def _add_contents(self, turn: Turn) -> None:
        place = self._conversation
        for role in ("user", "assistant"):
            place.last_position += 1
            self._keep(
                Message(
                    conversation=place, turn=turn, position=place.last_position, role=role,
                    content=[{"type": "text", "text": "Nothing is new. " * 12}], at=turn.queued_at,
                )
            )  # fmt: skip
        for kind in _EVENTS:
            place.last_seq += 1
            self._keep(
                Event(
                    conversation=place, turn=turn, seq=place.last_seq, type=kind,
                    payload={"tool_id": "call0", "duration_ms": 1}, at=turn.queued_at,
                )
            )  # fmt: skip

    def _keep(self, row: Any) -> Any:
        self._rows.setdefault(type(row), []).append(row)
        return row

    def _end(self, ends: Sequence[tuple[float, dict[str, Any]]]) -> dict[str, Any]:
        chance = self._random.random()
        return next(fields for share, fields in ends if chance <= share)

    def _milliseconds(self) -> int:
        return round(self._random.lognormvariate(6.5, 1.2))

    def _id(self) -> UUID:
        # Begins with “00”, which a copy replaces by the number of its day.
        return UUID(int=self._random.getrandbits(120), version=4)


if __name__ == "__main__":
    main()
