"""The reasons why a prompt does not extend the previous one, and their detection."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, Self

from turns.core.chat_model import ToolSpec


class PromptChange(StrEnum):
    """The reason that a model must read a conversation from the start again. This set is closed.

    The first two are detected when the next prompt is read. The last three occur when a prompt does not fit into the
    context window. `history_version.renew` records the others.
    """

    AGENT = "agent"  # the chat model or the instructions have changed
    TOOLS = "tools"
    EDIT = "edit"
    REPAIR = "repair"
    PRUNE = "prune"
    CLEAR = "clear"  # old results are left out
    SUMMARY = "summary"  # old turns are replaced by a summary
    CUT = "cut"  # old turns are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptHead:
    """Fingerprints of the content that precedes the messages in every request of a turn."""

    agent: str
    tools: str

    @classmethod
    def of(cls, chat_model: str, instructions: str, tools: Sequence[ToolSpec]) -> Self:
        descriptions = [[tool.name, tool.description, tool.input_schema] for tool in tools]
        return cls(agent=_fingerprint([chat_model, instructions]), tools=_fingerprint(descriptions))

    def change_since(self, fingerprints: Mapping[str, Any]) -> PromptChange | None:
        """Return the change since the previous turn, or None if nothing changed or there was no previous turn."""
        for name in (PromptChange.AGENT, PromptChange.TOOLS):
            if fingerprints.get(name, getattr(self, name)) != getattr(self, name):
                return name
        return None


def _fingerprint(value: Any) -> str:
    return sha256(json.dumps(value, default=dict).encode()).hexdigest()[:16]
