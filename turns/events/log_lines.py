"""The server log's lines about turns: accepted and settled cancels, ends, repairs, and changes of limits.

A line is written after the commit. It contains ids and statuses, never texts that people wrote.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from governance.db import on_commit
from turns.core.repairs import Repair
from turns.core.turns import TurnStatus
from turns.models import CancelRequest, Conversation, DeadlineOrder, Turn

logger = logging.getLogger("turns.log_lines")  # log files are searched by this name


def cancel_accepted(request: CancelRequest) -> None:
    """Log that a cancel request is stored."""
    facts = {"mode": request.mode, "by_id": request.by_id, "reason": request.reason}
    _say("A cancel was accepted", {**_of_request(request), **facts})


def cancel_settled(request: CancelRequest) -> None:
    """Log that a cancel has taken effect, and how long that took."""
    facts = {"outcome": request.outcome, "settled_ms": request.settled_ms}
    _say("A cancel was settled", {**_of_request(request), **facts})


def deadline_accepted(turn: Turn, order: DeadlineOrder, *, by_id: Any) -> None:
    """Log that a request to change a call's limit is stored. The resulting limit is in the call's row."""
    ids = {"turn_id": turn.pk, "conversation_id": turn.conversation_id, "call_id": order.tool_id}
    limits = {"timeout_ms": order.timeout_ms, "extend_ms": order.extend_ms}
    _say("Another limit for a call was accepted", {**ids, "by_id": by_id, **limits})


def turn_ended(
    conversation: Conversation, turn: Turn, *, status: TurnStatus, duration_ms: int, **facts: Any
) -> None:
    """Log that a turn has ended. `facts` are further details of the line."""
    ids = {
        "turn_id": turn.pk,
        "conversation_id": conversation.pk,
        "user_id": conversation.owner_id,
        "agent": turn.agent,
    }
    _say("A turn ended", {**ids, "status": status.value, "duration_ms": duration_ms, **facts})


def history_repaired(conversation_id: UUID, repairs: Iterable[Repair], *, found_when: str) -> None:
    """Log the repairs of a history, with their causes."""
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
    on_commit(partial(logger.info, sentence, extra=dict(facts)), robust=True)
