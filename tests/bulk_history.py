"""A long past: one finished turn, multiplied by SQL with all that belongs to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.apps import apps

_SPREAD = 2654435761  # ids lie all over an index, as random ones do
_CONVERSATION, _TURN = "c", "d"
Execute = Callable[[str], Any]
Changes = Mapping[str, str]  # expressions by column


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkHistory:
    """What is to be planted: conversations with so many turns each; ids are made of the numbers from `first` on."""

    conversations: int
    turns_each: int
    first: int = 0

    def conversation_id(self, number: int = 0) -> UUID:
        """Return the id of one of the conversations."""
        return UUID(_text_id(_CONVERSATION, self.first + number))


def insert_history(execute: Execute, vendor: str, template: UUID, history: BulkHistory) -> None:
    """Insert the rows; `execute` runs one statement in a database of this vendor, `template` is a conversation

    with one finished turn.
    """
    ids = _Ids(vendor)
    own = ids.literal(template)
    turn = f"({history.first} + n)"
    place, within = f"({history.first} + n / {history.turns_each})", f"(n % {history.turns_each})"

    def grown(column: str, last: str) -> str:
        return f"t.{column} + {within} * (SELECT {last} FROM turns_conversation WHERE id = {own})"

    conversation = {
        "id": ids.column(_CONVERSATION, f"({history.first} + n)"),
        **{
            name: f"t.{name} * {history.turns_each}"
            for name in ("last_number", "last_position", "last_seq")
        },
    }
    of_turn = {"turn_id": ids.column(_TURN, turn)}
    of_both = {"conversation_id": ids.column(_CONVERSATION, place), **of_turn}
    of_call = {"scope": ids.text(_CONVERSATION, place), "group": ids.text(_TURN, turn)}
    turns = {
        "id": of_turn["turn_id"],
        "conversation_id": of_both["conversation_id"],
        "number": f"{within} + 1",
        "client_id": "NULL",
    }
    here, of_call_here = f"conversation_id = {own}", f"scope = '{template}'"
    of_turn_here = f"turn_id IN (SELECT id FROM turns_turn WHERE {here})"
    rows = _Rows(execute)
    rows.count(history.conversations, order=conversation["id"])
    rows.multiply("turns.Conversation", f"id = {own}", conversation)
    # In the order in which the largest indexes have them.
    rows.count(history.conversations * history.turns_each, order=of_both["conversation_id"])
    rows.multiply("turns.Turn", here, turns)
    rows.multiply(
        "turns.Message", here, {**of_both, "position": grown("position", "last_position")}
    )
    rows.multiply("turns.Event", here, {**of_both, "seq": grown("seq", "last_seq")})
    rows.multiply("turns.CancelRequest", of_turn_here, of_turn)
    rows.multiply("turns.DeadlineOrder", of_turn_here, of_turn)
    rows.multiply("turns.Operation", here, {**of_both, "op_id": of_call["group"]})
    rows.multiply("governance.ToolCall", of_call_here, of_call)
    rows.multiply("governance.Approval", of_call_here, of_call)


class _Rows:
    """Inserts each row of a template as often as it has counted."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def count(self, times: int, *, order: str) -> None:
        """Have a number `n` for each copy, in an order."""
        self._make(
            "copies",
            f"WITH RECURSIVE series(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM series WHERE n < {times - 1}) "
            f"SELECT n FROM series ORDER BY {order}",
        )

    def multiply(self, model_name: str, where: str, changes: Changes) -> None:
        """Insert copies of those rows of a model, with what is different in each."""
        model = apps.get_model(model_name)
        table = model._meta.db_table
        columns = [field.column for field in model._meta.concrete_fields]
        if "id" not in changes:
            columns.remove("id")
        names = ", ".join(f'"{column}"' for column in columns)
        values = ", ".join(changes.get(column, f't."{column}"') for column in columns)
        self._make("template", f'SELECT * FROM "{table}" WHERE {where}')
        self._execute(
            f'INSERT INTO "{table}" ({names}) SELECT {values} FROM copies CROSS JOIN template t'
        )

    def _make(self, name: str, query: str) -> None:
        self._execute(f"DROP TABLE IF EXISTS {name}")
        self._execute(f"CREATE TEMPORARY TABLE {name} AS {query}")


class _Ids:
    """Ids by number, in the words of a database."""

    def __init__(self, vendor: str) -> None:
        self._is_sqlite = vendor == "sqlite"

    def text(self, kind: str, number: str) -> str:
        """Return an expression for an id as text."""
        spread = f"({number} * {_SPREAD} % 4294967296)"
        if self._is_sqlite:
            return f"printf('%08x-0000-4000-8000-{kind}%011x', {spread}, {number})"
        parts = f"lpad(to_hex({spread}), 8, '0')", f"lpad(to_hex({number}), 11, '0')"
        return f"{parts[0]} || '-0000-4000-8000-{kind}' || {parts[1]}"

    def column(self, kind: str, number: str) -> str:
        """Return an expression for an id as a column of ids has it."""
        text = self.text(kind, number)
        return f"replace({text}, '-', '')" if self._is_sqlite else f"CAST({text} AS uuid)"

    def literal(self, value: UUID) -> str:
        """Return an id as a column of ids has it."""
        return f"'{value.hex}'" if self._is_sqlite else f"'{value}'"


def _text_id(kind: str, number: int) -> str:
    return f"{number * _SPREAD % 4294967296:08x}-0000-4000-8000-{kind}{number:011x}"
