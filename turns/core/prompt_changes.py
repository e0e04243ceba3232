"""The reasons why a prompt does not extend the previous one, and their detection."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, Self

from turns.core.chat_model import ToolSpec


class PromptChange(StrEnum):
    """Why the model must read a conversation from the start again; a closed set.

    The first two are detected when the next prompt is read. The last three occur when a prompt does not fit into the
    context window. `history_version.renew` records the others.
    """

    AGENT = "agent"  # another chat model or other instructions
    TOOLS = "tools"
    EDIT = "edit"
    REPAIR = "repair"
    PRUNE = "prune"
    CLEAR = "clear"  # old results
    SUMMARY = "summary"  # old turns, of which it reads a summary
    CUT = "cut"  # old turns


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
        """Return the change since the previous turn; None without a change or without a previous turn."""
        for name in (PromptChange.AGENT, PromptChange.TOOLS):
            if fingerprints.get(name, getattr(self, name)) != getattr(self, name):
                return name
        return None


def _fingerprint(value: Any) -> str:
    return sha256(json.dumps(value, default=dict).encode()).hexdigest()[:16]
