"""What a client is told of things beyond its own log: how conversations stand, which is the latest, what sub-agents ask."""

from typing import Any
from uuid import UUID

from turns.overviews import Overview
from webchat import frames

_PASSING = {"expires_in_ms"}  # changes with every look, and the client counts by itself


class Elsewhere:
    """Remembers what one client was told, and says only what is new; at the welcome it knows of nothing."""

    def __init__(self, *, user_id: Any, conversation_id: UUID) -> None:
        self._user_id = user_id
        self._conversation_id = conversation_id
        self._told: tuple[Any, ...] = ([], [], None)

    def news(self, overview: Overview) -> frames.Overview | None:
        """Return the frame that tells how things stand; None if the client knows. Call it to send what it returns."""
        marks = overview.marks.get(self._user_id, {})
        conversations = [
            {
                "conversation_id": str(pk),
                "standing": mark.standing.value,
                "asked_in": [str(place) for place in mark.asked_in],
            }
            for pk, mark in marks.items()
            if pk != self._conversation_id
        ]
        questions = overview.questions.get(self._conversation_id, [])
        row = overview.latest.get(self._user_id)
        latest = {"conversation_id": str(row.pk), "title": row.title} if row else None
        lasting = [
            {name: value for name, value in question.items() if name not in _PASSING}
            for question in questions
        ]
        if self._told == (conversations, lasting, latest):
            return None
        self._told = (conversations, lasting, latest)
        return frames.Overview(conversations=conversations, questions=questions, latest=latest)
