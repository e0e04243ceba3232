"""A whole conversation for its owner to keep: every message, every call with its whole result."""

from typing import Any
from uuid import UUID

from django.utils import timezone

from governance import selectors as governance_selectors
from governance.db import run_in_pool_thread
from turns.calls import serializers
from turns.models import Conversation, Message, Turn
from turns.selectors import turn_serializers
from turns.storage.access import User, conversation_for

Json = dict[str, Any]


@run_in_pool_thread
def export(*, conversation_id: UUID, user: User) -> Json:
    """Return what was said and done in a conversation of the user, in order. Raise `ConversationNotFound`."""
    conversation = conversation_for(user, conversation_id)
    turns = list(Turn.objects.filter(conversation=conversation).order_by("number"))
    facts = turn_serializers.ended_turns(turns)
    messages = _messages_of(conversation)
    calls = _calls_of(turns)
    return {
        "conversation_id": str(conversation.pk),
        "title": conversation.title,
        "created_at": conversation.created_at.isoformat(),
        "exported_at": timezone.now().isoformat(),
        "turns": [
            {
                **fact,
                "queued_at": turn.queued_at.isoformat(),
                "messages": messages.get(turn.pk, []),
                "calls": calls.get(turn.pk, []),
            }
            for turn, fact in zip(turns, facts, strict=True)
        ],
    }


def _messages_of(conversation: Conversation) -> dict[UUID, list[Any]]:
    found: dict[UUID, list[Any]] = {}
    rows = Message.objects.filter(conversation=conversation, is_streaming=False)
    for row in rows.order_by("position"):
        found.setdefault(row.turn_id, []).append(turn_serializers.message(row))
    return found


def _calls_of(turns: list[Turn]) -> dict[UUID, list[Any]]:
    """The calls of each turn as clients see them, but with whole results."""
    at = timezone.now()
    described = serializers.DescribedCalls((turn.pk for turn in turns), at=at)
    whole = {
        (result.group, result.call_id): result.result
        for result in governance_selectors.results_of_groups(str(turn.pk) for turn in turns)
    }
    return {
        turn.pk: [
            {**call, "result": whole[str(turn.pk), call["tool_id"]]}
            if (str(turn.pk), call["tool_id"]) in whole
            else call
            for call in described.of(turn.pk)
        ]
        for turn in turns
    }
