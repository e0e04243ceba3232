"""A generated past for the pages of the admin: a month of calls of all kinds and what belongs to them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import connection, models, transaction
from django.utils import timezone

from benchmarks.progress import say
from governance.models import Approval, ToolCall
from turns.models import Agent, CancelRequest, Conversation, Event, Message, Process, Repair, Turn

SPAN = timedelta(days=30)
CALLS_OF_A_TURN = 3
TURNS_OF_A_CONVERSATION = 10
WITH_CONTENTS = timedelta(days=20)  # what is older has messages and events, which `prune` deletes
COPIED = (Conversation, Turn, ToolCall, Approval, CancelRequest, Repair, Message, Event)
_EVENTS = ("turn_start", "tool_start", "tool_result", "turn_end")
_BY_ADA = {"ended_by_reason": "user", "ended_by_source": "button", "ended_by_name": "ada"}
_TIMEOUT = {"error_type": "timeout", "ended_by_reason": "timeout", "is_error": True}
# How things end, with the share of those that end like that or as something above.
_CALLS: Sequence[tuple[float, dict[str, Any]]] = (
    (0.930, {"status": "succeeded", "disposition": "settled"}),
    (0.970, {"status": "failed", "error_type": "execution_error", "is_error": True}),
    (0.985, {"status": "timed_out", "limit_reached": "total", **_TIMEOUT}),
    (0.998, {"status": "cancelled", "error_type": "cancelled", "is_error": True, **_BY_ADA}),
    (0.999, {"status": "abandoned", "limit_reached": "idle", **_TIMEOUT}),
    (1.000, {"status": "repaired", "error_type": "interrupted", "is_error": True}),
)
_TURNS: Sequence[tuple[float, dict[str, Any]]] = (
    (0.930, {"status": "completed"}),
    (0.970, {"status": "cancelled", **_BY_ADA}),
    (0.980, {"status": "timed_out", "ended_by_reason": "timeout"}),
    (0.995, {"status": "failed", "error_code": "model_error"}),
    (1.000, {"status": "interrupted"}),
)


def generate(calls: int, *, tools: Sequence[str]) -> None:
    """Store so many calls, evenly over the month up to now. One day is made, the others are copies."""
    count = calls // CALLS_OF_A_TURN // SPAN.days
    past = _Past(count, tools=tools)
    for number in range(count):
        past.add_turn(number)
    past.store()
    say(f"a day of {count:,} turns generated")
    for model in COPIED:
        _copy(model)
        say(f"{model._default_manager.count():,} {model._meta.verbose_name_plural}")
    old = timezone.now() - WITH_CONTENTS
    for model in (Message, Event):
        model._default_manager.filter(at__gt=old).delete()
    with connection.cursor() as cursor:  # what databases do by themselves after a while
        cursor.execute("ANALYZE" if connection.vendor == "postgresql" else "PRAGMA optimize")


def _copy(model: type[models.Model]) -> None:
    """Copy the rows of the one day into the other days of the month."""
    fields = [
        field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)
    ]
    names = ", ".join(f'"{field.column}"' for field in fields)
    values = ", ".join(_moved(field) for field in fields)
    table = model._meta.db_table
    days = f"WITH RECURSIVE days(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM days WHERE n < {SPAN.days - 1})"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f'CREATE TEMPORARY TABLE one_day AS SELECT * FROM "{table}"')
        cursor.execute(
            f'INSERT INTO "{table}" ({names}) {days} SELECT {values} FROM days CROSS JOIN one_day'
        )
        cursor.execute("DROP TABLE one_day")


def _moved(field: Any) -> str:
    """Return the expression for a column of a copy: so many days earlier, with ids that begin with the day."""
    column, is_sqlite = f'"{field.column}"', connection.vendor == "sqlite"
    if isinstance(field, models.DateTimeField):
        moved = f"strftime('%Y-%m-%d %H:%M:%f', {column}, '-' || n || ' days')"
        return f"{moved} || '000'" if is_sqlite else f"{column} - n * interval '1 day'"
    related = getattr(field, "related_model", None)
    if related in (Turn, Conversation) or (
        field.primary_key and isinstance(field, models.UUIDField)
    ):
        return (
            _renamed(column)
            if is_sqlite
            else f"CAST({_renamed(f'CAST({column} AS text)')} AS uuid)"
        )
    return _renamed(column) if field.name in ("group", "scope") else column


def _renamed(text: str) -> str:
    return (
        f"substr('0' || n, -2) || substr({text}, 3)"
        if connection.vendor == "sqlite"
        else f"lpad(CAST(n AS text), 2, '0') || substr({text}, 3)"
    )


class _Past:
    """Makes rows, the same ones each time, and keeps them until they are stored."""

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
        """Make one turn with its calls, and all that belongs to it."""
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
        """Store what was made, and forget it."""
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
        return UUID(
            int=self._random.getrandbits(120), version=4
        )  # begins with “00”: that of a copy with its day
