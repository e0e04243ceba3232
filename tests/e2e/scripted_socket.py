"""A test's own server behind the page's socket: a conversation of any length, frames as fast as one likes."""

import asyncio
import json
from typing import Any

from playwright.async_api import Page, WebSocketRoute

LIVE = "live"


class ScriptedSocket:
    """Answers `hello` with a long conversation, and sends what it is told to."""

    def __init__(self, *, turns: int, calls: int, user: str = "demo") -> None:
        self._user = user
        self._snapshot = _snapshot(turns=turns, calls=calls)
        self._seq: int = self._snapshot["seq"]
        self._route: WebSocketRoute | None = None

    async def stand_behind(self, page: Page) -> None:
        """Take the place of the server's socket in a tab."""
        await page.route_web_socket("**/ws/**", self._opened)

    def send(self, **frame: Any) -> None:
        """Send a frame."""
        assert self._route is not None
        self._route.send(json.dumps(frame))

    def greet(self) -> None:
        """Begin as a connection does: with the welcome and the snapshot."""
        self.send(
            type="welcome", protocol=1, server_version="", last_seq=self._seq, user=self._user
        )
        self.send(**self._snapshot)

    def begin_turn(self) -> None:
        """Let a turn begin after all others."""
        self.go_on(
            type="turn_start",
            user_message="Write.",
            client_id=None,
            agent="assistant",
            parent_turn_id=None,
            turn_timeout_ms=None,
            source="user",
            reports=[],
        )

    def go_on(self, **event: Any) -> None:
        """Send the next event of the turn that runs."""
        self._seq += 1
        self.send(seq=self._seq, turn_id=LIVE, at="2026-01-01T00:00:00+00:00", **event)

    async def write(self, *, pieces: int, per_second: int, text: str = "word, ") -> None:
        """Send pieces of text, each behind the one before."""
        for number in range(pieces):
            self.send(type="text_delta", turn_id=LIVE, text=text, offset=number * len(text))
            await asyncio.sleep(1 / per_second)

    def _opened(self, route: WebSocketRoute) -> None:
        self._route = route
        route.on_message(self._heard)

    def _heard(self, message: str | bytes) -> None:
        match json.loads(message)["type"]:
            case "hello":
                self.greet()
            case "ping":
                self.send(type="heartbeat", last_seq=self._seq)


def _snapshot(*, turns: int, calls: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for number in range(turns):
        asks = [
            {
                "type": "tool_use",
                "id": f"c{number}",
                "name": "wait",
                "input": {"seconds": 1},
                "arguments": [{"name": "seconds", "value": "1", "is_text": False}],
            }
        ]
        said = [
            ("user", [{"type": "text", "text": f"Question {number}."}]),
            *([("assistant", asks)] if number < calls else []),
            ("assistant", [{"type": "text", "text": f"Answer {number}."}]),
        ]
        for role, content in said:
            position = len(messages) + 1
            messages.append(
                {
                    "id": position,
                    "turn_id": f"t{number}",
                    "position": position,
                    "step": 0,
                    "role": role,
                    "content": content,
                    "interrupted": False,
                    "at": "2026-01-01T00:00:00+00:00",
                    "html": "",
                }
            )
    return {
        "type": "snapshot",
        "seq": 1,
        "messages": messages,
        "calls": [_call(number) for number in range(calls)],
        "turns": [_turn(number) for number in range(turns)],
        "active_turns": [],
        "has_earlier": False,
        "parked": None,
    }


def _turn(number: int) -> dict[str, Any]:
    return {
        "turn_id": f"t{number}",
        "number": number + 1,
        "version": 1,
        "replaced_by": None,
        "agent": "assistant",
        "status": "completed",
        "started": True,
        "user_message": f"Question {number}.",
        "attachments": [],
        "source": "typed",
        "ended_by": None,
        "error_code": None,
        "error_message": None,
        "duration_ms": 1_000,
        "usage": {},
        "acknowledgements": [],
        "notice": None,
    }


def _call(number: int) -> dict[str, Any]:
    return {
        "tool_id": f"c{number}",
        "tool_name": "wait",
        "turn_id": f"t{number}",
        "status": "succeeded",
        "elapsed_ms": 1_000,
        "timeout_ms": 120_000,
        "timeout_source": "tool",
        "idle_timeout_ms": None,
        "waits_for": None,
        "tool_title": "Wait",
        "tool_server": "",
        "allowed_earlier_by": "",
        "input": {"seconds": 1},
        "arguments": [{"name": "seconds", "value": "1", "is_text": False}],
        "interruptible": True,
        "approval": None,
        "message": None,
        "progress": None,
        "total": None,
        "tail": None,
        "expected_ms": None,
        "sub_agent": None,
        "result": "Waited.",
        "result_length": 7,
        "is_error": False,
        "error_type": None,
        "limit_reached": None,
        "duration_ms": 1_000,
        "ended_by": None,
        "late": None,
    }
