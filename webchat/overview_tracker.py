"""The overview that a client has: the status of other conversations, the latest one, the questions of sub-agents.

What a person's conversations are like is encoded once for all their sockets, however many they have of both.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from turns.selectors.conversation_status import Overview, StatusMark
from webchat.feed import encode, encode_frame
from webchat.protocol import server_frames
from webchat.translation import for_reader

_COUNTED = {"expires_in_ms", "elapsed_ms"}  # change with every poll; the client counts by itself
_NONE = "[]"

Entries = Mapping[str, str]
"""The conversations of a person that are not at rest: each by its id, as it is sent."""


class EncodedOverview:
    """An overview on its way to the sockets of a process."""

    def __init__(self, overview: Overview) -> None:
        self.overview = overview
        self._entries: dict[Any, Entries] = {}

    def entries_of(self, user_id: Any) -> Entries:
        """Return the conversations of a person as they are sent."""
        if user_id not in self._entries:
            marks = self.overview.marks.get(user_id, {})
            self._entries[user_id] = {
                str(pk): encode(_described(pk, mark)) for pk, mark in marks.items()
            }
        return self._entries[user_id]


class OverviewTracker:
    """Remembers the last overview that one client got; the first is always new to it."""

    def __init__(self, *, user_id: Any, conversation_id: UUID) -> None:
        self._user_id = user_id
        self._conversation_id = conversation_id
        self._place = str(conversation_id)
        self._entries: Entries = {}
        self._rest: tuple[Any, ...] | None = None

    def changes(self, told: EncodedOverview) -> str | None:
        """Return the frame to send, or None if nothing has changed. The frame counts as sent."""
        overview, entries = told.overview, told.entries_of(self._user_id)
        questions = for_reader(overview.questions.get(self._conversation_id, []))
        background = for_reader(overview.background.get(self._conversation_id, []))
        row = overview.latest.get(self._user_id)
        latest: server_frames.LatestConversation | None = (
            {"conversation_id": str(row.pk), "title": row.title} if row else None
        )
        edited_at = overview.edited.get(self._user_id)
        edited = edited_at.isoformat() if edited_at else None
        rest = (_stable(questions), _stable(background), latest, edited)
        if self._rest == rest and self._are_known(entries):
            return None
        self._entries, self._rest = entries, rest
        frame = server_frames.Overview(
            conversations=[],
            questions=questions,
            latest=latest,
            edited_at=edited,
            background=background,
        )
        listed = ",".join(self._others(entries).values())
        return encode_frame(frame).replace(_NONE, f"[{listed}]", 1)  # the first list of a frame

    def _are_known(self, entries: Entries) -> bool:
        """Whether the client has them: its own conversation is none of them."""
        known = self._entries
        return known == entries or self._others(known) == self._others(entries)

    def _others(self, entries: Entries) -> Entries:
        others = dict(entries)  # a copy takes less time than a look at each
        others.pop(self._place, None)
        return others


def _described(pk: UUID, mark: StatusMark) -> server_frames.BusyConversation:
    return {
        "conversation_id": str(pk),
        "standing": mark.standing.value,
        "asked_in": [str(place) for place in mark.asked_in],
        "tools_running": mark.tools_running,
        "is_queued": mark.is_queued,
    }


def _stable(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in entry.items() if name not in _COUNTED} for entry in entries
    ]
