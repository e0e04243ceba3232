"""What the server's log says of turns. Each cancel has a line when it is accepted and settled. Each end and repair has one, too.

Another limit for one call has its line, too. A line is written once the change is committed. It has ids and statuses, never what people wrote.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

from turns.core.repairs import Repair
from turns.core.turns import TurnStatus
from turns.models import CancelRequest, Conversation, DeadlineOrder, Turn

logger = logging.getLogger("turns.log_lines")  # a name that log files are searched for


def cancel_accepted(request: CancelRequest) -> None:
    """Log that a cancel request is stored."""
    facts = {"mode": request.mode, "by_id": request.by_id, "reason": request.reason}
    _say("A cancel was accepted", {**_of_request(request), **facts})


def cancel_settled(request: CancelRequest) -> None:
    """Say that what was asked has come true, and how long that took."""
    facts = {"outcome": request.outcome, "settled_ms": request.settled_ms}
    _say("A cancel was settled", {**_of_request(request), **facts})


def deadline_accepted(turn: Turn, order: DeadlineOrder, *, by_id: Any) -> None:
    """Log that a person's request for another limit of one call is stored. Which limit it gets is on the call's row."""
    ids = {"turn_id": turn.pk, "conversation_id": turn.conversation_id, "call_id": order.tool_id}
    wanted = {"timeout_ms": order.timeout_ms, "extend_ms": order.extend_ms}
    _say("Another limit for a call was accepted", {**ids, "by_id": by_id, **wanted})


def turn_ended(
    conversation: Conversation, turn: Turn, *, status: TurnStatus, duration_ms: int, **facts: Any
) -> None:
    """Say that a turn is over; `facts` say more of why."""
    ids = {
        "turn_id": turn.pk,
        "conversation_id": conversation.pk,
        "user_id": conversation.owner_id,
        "agent": turn.agent,
    }
    _say("A turn ended", {**ids, "status": status.value, "duration_ms": duration_ms, **facts})


def history_repaired(conversation_id: UUID, repairs: Iterable[Repair], *, found_when: str) -> None:
    """Say what was put right in a history, and why."""
    for repair in repairs:
        facts = {"kind": repair.kind.value, "cause": repair.cause.name, "found_when": found_when}
        ids = {
            "conversation_id": conversation_id,
            "turn_id": repair.turn_id,
            "call_id": repair.tool_id,
        }
        _say("A history was repaired", {**ids, **facts})


def _of_request(request: CancelRequest) -> dict[str, Any]:
    return {"turn_id": request.turn_id, "call_id": request.tool_id, "source": request.source}


def _say(sentence: str, facts: Mapping[str, Any]) -> None:
    transaction.on_commit(partial(logger.info, sentence, extra=dict(facts)), robust=True)
