"""Rows of turns planted without running anything: what a crash, a bug or another program may have left behind."""

from datetime import timedelta
from itertools import count
from typing import Any

from django.utils import timezone

from governance.db_clock import now_minus
from governance.models import Approval, ToolCall
from turns.core.ports import ClaimedTurn
from turns.models import Conversation, Message, Process, Repair, Turn

_count = count(1)


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def use(id: str, name: str = "quick", **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result(id: str, content: str = "planted", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


class RowFactory:
    """One conversation whose rows are written by hand."""

    def __init__(self, owner: Any = None, *, conversation: Conversation | None = None) -> None:
        self.conversation = conversation or Conversation.objects.create(owner=owner)

    @property
    def id(self) -> Any:
        return self.conversation.pk

    def turn(self, status: str = "completed", **fields: Any) -> Turn:
        self.conversation.last_number += 1
        self.conversation.save(update_fields=["last_number"])
        at = timezone.now() - timedelta(seconds=100 - self.conversation.last_number)
        is_over = status not in ("queued", "running", "cancelling")
        return Turn.objects.create(
            **{
                "conversation": self.conversation,
                "number": self.conversation.last_number,
                "user_message": "planted",
                "status": status,
                "queued_at": at,
                "started_at": None if status == "queued" else at,
                "ended_at": at if is_over else None,
                **fields,
            }
        )

    def claimed(self, turn: Turn) -> ClaimedTurn:
        """The turn as its owner has it."""
        return ClaimedTurn(
            id=turn.pk,
            conversation_id=self.id,
            epoch=turn.epoch,
            agent="",
            user_message=turn.user_message,
            turn_timeout=None,
            step_limit=1,
            parent_id=turn.parent_id,
        )

    def message(self, turn: Turn, role: str, *content: Any, step: int = 1, **more: Any) -> Message:
        self.conversation.last_position += 1
        self.conversation.save(update_fields=["last_position"])
        return Message.objects.create(
            conversation=self.conversation,
            turn=turn,
            position=self.conversation.last_position,
            role=role,
            step=0 if role == "user" else step,
            content=list(content),
            at=timezone.now(),
            **more,
        )

    def call(self, turn: Turn, call_id: str, status: str = "succeeded", **fields: Any) -> ToolCall:
        return ToolCall.objects.create(
            **{
                "call_id": call_id,
                "scope": str(self.id),
                "group": str(turn.pk),
                "step": 1,
                "position": next(_count),
                "tool_name": "quick",
                "status": status,
                "result": f"the result of {call_id}" if status == "succeeded" else "",
                "requested_at": timezone.now(),
                **fields,
            }
        )


def make_question(turn: Turn, call_id: str, **fields: Any) -> Approval:
    """Plant a question about a call."""
    return Approval.objects.create(
        **{
            "group": str(turn.pk),
            "scope": str(turn.conversation_id),
            "call_id": call_id,
            "requested_at": timezone.now(),
            **fields,
        }
    )


def make_repair(turn: Turn, **fields: Any) -> Repair:
    """Plant the correction of a history: a result that a crash left out."""
    return Repair.objects.create(
        **{
            "conversation": turn.conversation,
            "turn": turn,
            "kind": "missing_result",
            "cause": "crash",
            "found_when": "recovery",
            "at": timezone.now(),
            **fields,
        }
    )


def contents(conversation: Conversation) -> tuple[Any, ...]:
    """Everything that a repair may write, for a comparison."""
    conversation.refresh_from_db()
    groups = [str(pk) for pk in conversation.turns.values_list("pk", flat=True)]
    return (
        list(conversation.messages.order_by("pk").values()),
        list(ToolCall.objects.filter(group__in=groups).order_by("pk").values()),
        list(conversation.repairs.order_by("pk").values()),
        list(conversation.turns.order_by("number").values()),
        conversation.last_seq,
    )


def make_process(*, age: float = 0.0, **fields: Any) -> Process:
    """A process of another host that renewed its lease `age` seconds ago, by the database's clock."""
    process = Process.objects.create(
        **{"host": "elsewhere", "boot_id": "there", "pid_namespace": "pid:[1]", "pid": 1, **fields}
    )
    Process.objects.filter(pk=process.pk).update(seen_at=now_minus(timedelta(seconds=age)))
    return process
