"""The configuration and the tools of an MCP server: plain values, without Django and without the SDK."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

LONGEST_TOOL_NAME = 64  # the longest name that all providers of chat models accept
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class Transport(StrEnum):
    STDIO = "stdio"
    HTTP = "http"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """The configuration of one server, without secrets: it only names the environment variables that contain them.

    `headers` maps each header to the environment variable that contains its value. `environment` names the variables
    that a command receives. `timeout` is the limit that the server's tools declare, in seconds: None means that they
    declare none, 0 means no limit. `max_running` limits the calls of all its tools together. If `allowed_tools` is
    empty, every tool is allowed. A server is not connected if it names variables that it may not receive (`unlisted`).

    If `asks_people` is true, the server's running calls may show forms to the person for whom they run.

    `read_only_tools` are trusted to be read-only if the server marks them as such; None means the tools that its first
    list marks. If `uses_instructions` is true, agents read the server's instructions. Neither affects the connection,
    so equality ignores both.
    """

    id: int
    name: str
    transport: Transport
    command: tuple[str, ...] = ()
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    environment: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    allowed_tools: frozenset[str] = frozenset()
    timeout: float | None = None
    max_running: int | None = None
    prefix: str = ""
    allow_private: bool = False
    asks_people: bool = False
    read_only_tools: frozenset[str] | None = field(default=frozenset(), compare=False)
    uses_instructions: bool = field(default=False, compare=False)

    def allows(self, tool_name: str) -> bool:
        """Return whether the server's tool with this name may be used."""
        return not self.allowed_tools or tool_name in self.allowed_tools

    def local_name(self, tool_name: str) -> str:
        """Return the name under which the server's tool is registered here, which every provider accepts."""
        name = _NOT_IN_A_NAME.sub("_", self.prefix + tool_name)
        if len(name) <= LONGEST_TOOL_NAME:
            return name
        mark = hashlib.sha256(tool_name.encode()).hexdigest()[:8]
        return f"{name[: LONGEST_TOOL_NAME - 9]}_{mark}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTool:
    """A tool as its server describes it. `is_read_only` is the server's claim, not a proof.

    `problem` is a clause that says why the tool cannot be used, or empty if it can.
    """

    name: str
    title: str = ""
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    is_read_only: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTiming:
    """Times in seconds, and limits on the messages of a server.

    `connect_timeout` is long, because a command may first download itself. `ready_timeout` is how long turns wait for a
    server that connects for the first time, `return_timeout` for one whose attempts or sessions have failed.
    `restart_timeout` is how long a call without a limit waits for its server; other calls wait within their limit.

    A session gets no new calls once its server has not accepted a notification within `notice_timeout`, or has not read
    its input within `request_timeout`. A server is disconnected if it sends more than `messages_per_second` after a
    burst of `most_messages`, or a message of more than `longest_message` bytes. It is also disconnected if more than
    `most_unanswered` of its own requests are open, because it does not read the responses.
    """

    connect_timeout: float = 60.0
    ready_timeout: float = 10.0
    return_timeout: float = 2.0
    restart_timeout: float = 120.0
    request_timeout: float = 30.0
    notice_timeout: float = 5.0
    close_grace: float = 0.3
    end_grace: float = 0.4
    relist_pause: float = 0.2
    first_backoff: float = 1.0
    longest_backoff: float = 60.0
    steady_after: float = 60.0
    longest_message: int = 10_000_000
    most_messages: int = 5_000
    messages_per_second: float = 1_000.0
    most_unanswered: int = 100
    most_garbage: int = 100
    most_tools: int = 500
