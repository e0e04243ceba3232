"""What turns add to exports: the turn's owner, agent and process, and the answer to a cancel word."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Case, CharField, Value, When
from django.db.models.functions import Cast, Concat

from governance.admin.exports import Columns, Row, add_columns
from governance.admin.search import USERNAME, as_id
from turns.models import Acknowledgement, Turn

_PROCESS = Case(  # as the pages name it
    When(owner=None, then=None),
    When(owner__name="", then=Concat("owner__host", Value(":"), Cast("owner__pid", CharField()))),
    default="owner__name",
    output_field=CharField(),
)
_FACTS: dict[str, Any] = {
    "user": f"conversation__owner__{USERNAME}",
    "agent": "agent",
    "turn_number": "number",
    "process": _PROCESS,
}


def register() -> None:
    """Add the columns to the exports of calls, turns, conversations and the audit."""
    for source, key in (
        ("governance.ToolCall", "group"),
        ("governance.Approval", "group"),
        ("turns.CancelRequest", "turn_id"),
        ("turns.CancelledTurn", "turn_id"),
        ("turns.Repair", "turn_id"),
    ):
        add_columns(source, _of_turns(tuple(_FACTS), key=key))
    add_columns("turns.Turn", _of_turns(("user", "process"), key="id"))
    add_columns("turns.Conversation", Columns(names=("user",), read=_owners))
    answers = Columns(names=("said", "answer"), read=_answers, are_content=True)
    for source in ("turns.CancelRequest", "turns.CancelledTurn"):
        add_columns(source, answers)


def _of_turns(names: tuple[str, ...], *, key: str) -> Columns:
    read = partial(_facts_of_turns, names=names, key=key)
    return Columns(names=names, read=read, permission="turns.view_turn")


def _facts_of_turns(rows: Sequence[Row], *, names: Sequence[str], key: str) -> Iterator[Row]:
    ids = [as_id(str(row[key])) for row in rows]  # governance takes anything for a group
    paths = [_FACTS[name] for name in names]
    turns = (
        Turn.objects.order_by().filter(pk__in={pk for pk in ids if pk}).values_list("pk", *paths)
    )
    known = {pk: facts for pk, *facts in turns}
    nothing = [None] * len(names)
    return (dict(zip(names, known.get(pk, nothing), strict=True)) for pk in ids)


def _owners(rows: Sequence[Row]) -> Iterator[Row]:
    users = get_user_model()._default_manager.filter(pk__in={row["owner_id"] for row in rows})
    known = dict(users.values_list("pk", USERNAME))
    return ({"user": known.get(row["owner_id"])} for row in rows)


def _answers(rows: Sequence[Row]) -> Iterable[dict[str, Any]]:
    asked = Acknowledgement.objects.order_by().filter(request_id__in=[row["id"] for row in rows])
    known = {pk: facts for pk, *facts in asked.values_list("request_id", "said", "text")}
    for row in rows:
        said, answer = known.get(row["id"], (None, None))
        yield {"said": said, "answer": answer}
