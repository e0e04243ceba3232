"""A long past: one finished turn, multiplied by SQL with its messages, events and calls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.apps import apps

_SPREAD = 2654435761  # ids lie all over an index, as random ones do
_CONVERSATION, _TURN = "c", "d"
Execute = Callable[[str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What is to be planted: conversations with so many turns each; ids are made of the numbers from `first` on."""

    conversations: int
    turns_each: int
    first: int = 0

    def conversation_id(self, number: int = 0) -> UUID:
        """Return the id of one of the conversations."""
        return UUID(_text_id(_CONVERSATION, self.first + number))


def plant(execute: Execute, vendor: str, template: UUID, past: Past) -> None:
    """Insert the rows; `execute` runs one statement in a database of this vendor, `template` is a conversation

    with one finished turn.
    """
    ids = _Ids(vendor)
    own = ids.literal(template)
    each = past.turns_each
    place, turn, within = f"({past.first} + n / {each})", f"({past.first} + n)", f"(n % {each})"

    def of_template(column: str) -> str:
        return f"(SELECT {column} FROM turns_conversation WHERE id = {own})"

    def grown(column: str, last: str) -> str:
        return f"t.{column} + {within} * {of_template(last)}"

    conversation = {
        name: f"t.{name} * {each}" for name in ("last_number", "last_position", "last_seq")
    }
    conversation["id"] = ids.column(_CONVERSATION, turn)
    of_both = {
        "conversation_id": ids.column(_CONVERSATION, place),
        "turn_id": ids.column(_TURN, turn),
    }
    turns = {"id": of_both["turn_id"], "number": f"{within} + 1", "client_id": "NULL"}
    turns["conversation_id"] = of_both["conversation_id"]
    message = {**of_both, "position": grown("position", "last_position")}
    event = {**of_both, "seq": grown("seq", "last_seq")}
    call = {"scope": ids.text(_CONVERSATION, place), "group": ids.text(_TURN, turn)}
    many, here = past.conversations * each, f"conversation_id = {own}"
    _multiply(execute, "turns.Conversation", f"id = {own}", past.conversations, conversation)
    _multiply(execute, "turns.Turn", here, many, turns)
    _multiply(execute, "turns.Message", here, many, message)
    _multiply(execute, "turns.Event", here, many, event)
    _multiply(execute, "governance.ToolCall", f"scope = '{template}'", many, call)


def _multiply(
    execute: Execute, name: str, where: str, times: int, changes: Mapping[str, str]
) -> None:
    model = apps.get_model(name)
    columns = [field.column for field in model._meta.concrete_fields]
    if "id" not in changes:
        columns.remove("id")
    names = ", ".join(f'"{column}"' for column in columns)
    values = ", ".join(changes.get(column, f't."{column}"') for column in columns)
    execute(
        f'INSERT INTO "{model._meta.db_table}" ({names}) '
        f"WITH RECURSIVE series(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM series WHERE n < {times - 1}) "
        f'SELECT {values} FROM (SELECT * FROM "{model._meta.db_table}" WHERE {where}) t, series'
    )


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
