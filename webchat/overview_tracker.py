"""The overview that a client has: the status of other conversations, the latest one, the questions of sub-agents."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from turns.selectors.conversation_status import Overview
from webchat.protocol import server_frames
from webchat.translation import for_reader

_COUNTED = {"expires_in_ms", "elapsed_ms"}  # change with every poll; the client counts by itself


class OverviewTracker:
    """Remembers the last overview that one client got; at first it has none."""

    def __init__(self, *, user_id: Any, conversation_id: UUID) -> None:
        self._user_id = user_id
        self._conversation_id = conversation_id
        self._sent: tuple[Any, ...] = ([], [], [], None, None)

    def changes(self, overview: Overview) -> server_frames.Overview | None:
        """Return the frame to send, or None if nothing has changed. The frame counts as sent."""
        marks = overview.marks.get(self._user_id, {})
        conversations: list[server_frames.BusyConversation] = [
            {
                "conversation_id": str(pk),
                "standing": mark.standing.value,
                "asked_in": [str(place) for place in mark.asked_in],
                "tools_running": mark.tools_running,
                "is_queued": mark.is_queued,
            }
            for pk, mark in marks.items()
            if pk != self._conversation_id
        ]
        questions = for_reader(overview.questions.get(self._conversation_id, []))
        background = for_reader(overview.background.get(self._conversation_id, []))
        row = overview.latest.get(self._user_id)
        latest: server_frames.LatestConversation | None = (
            {"conversation_id": str(row.pk), "title": row.title} if row else None
        )
        edited_at = overview.edited.get(self._user_id)
        edited = edited_at.isoformat() if edited_at else None
        told = (conversations, _stable(questions), _stable(background), latest, edited)
        if self._sent == told:
            return None
        self._sent = told
        return server_frames.Overview(
            conversations=conversations,
            questions=questions,
            latest=latest,
            edited_at=edited,
            background=background,
        )


def _stable(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in entry.items() if name not in _COUNTED} for entry in entries
    ]
