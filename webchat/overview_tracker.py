"""The overview that a client has: the status of other conversations, the latest one, the questions of sub-agents."""

from typing import Any
from uuid import UUID

from turns.selectors.conversation_status import Overview
from webchat.protocol import server_frames

_COUNTED_DOWN = {"expires_in_ms"}  # changes with every poll; the client counts by itself


class OverviewTracker:
    """Remembers the last overview that one client got; at first it has none."""

    def __init__(self, *, user_id: Any, conversation_id: UUID) -> None:
        self._user_id = user_id
        self._conversation_id = conversation_id
        self._sent: tuple[Any, ...] = ([], [], None)

    def changes(self, overview: Overview) -> server_frames.Overview | None:
        """Return the frame to send, or None if nothing has changed. The frame counts as sent."""
        marks = overview.marks.get(self._user_id, {})
        conversations: list[server_frames.BusyConversation] = [
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
        latest: server_frames.LatestConversation | None = (
            {"conversation_id": str(row.pk), "title": row.title} if row else None
        )
        stable = [
            {name: value for name, value in question.items() if name not in _COUNTED_DOWN}
            for question in questions
        ]
        if self._sent == (conversations, stable, latest):
            return None
        self._sent = (conversations, stable, latest)
        return server_frames.Overview(
            conversations=conversations, questions=questions, latest=latest
        )
