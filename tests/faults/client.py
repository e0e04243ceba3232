"""Clients of a site: over HTTP, in the admin, and over a WebSocket that reconnects."""

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync

ENDED = {"completed", "cancelled", "failed", "timed_out", "interrupted"}


class Client:
    """One user's requests to one web process."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token
        self._http = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=LONG_PATIENCE,
        )

    def close(self) -> None:
        """Let the connections go."""
        self._http.close()

    def get(self, path: str) -> httpx.Response:
        """Ask for a page."""
        return self._http.get(path)

    def post(self, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        """Send something."""
        return self._http.post(path, json=body or {})

    def converse(self) -> str:
        """Begin a conversation and return its id."""
        return str(_good(self.post("/api/conversations"))["conversation_id"])

    def say(self, conversation_id: str, text: str, **fields: Any) -> str:
        """Say something and return the id of the turn."""
        body = {"text": text, **fields}
        answer = _good(self.post(f"/api/conversations/{conversation_id}/messages", body))
        return str(answer["turn_id"])

    def attach(self, name: str, content: bytes) -> str:
        """Hand in a file and return its id."""
        kept = self._http.post(
            "/api/attachments",
            params={"name": name},
            content=content,
            headers={"Content-Type": "application/octet-stream"},
        )
        return str(_good(kept)["attachment_id"])

    def say_to_the_dying(self, conversation_id: str, text: str, *, client_id: str) -> None:
        """Say something to a process that may be gone before it can answer."""
        with suppress(httpx.TransportError):
            self.say(conversation_id, text, client_id=client_id)

    def say_unanswered(self, conversation_id: str, text: str) -> None:
        """Say something that may block the event loop before the answer is written."""
        threading.Thread(
            target=self.say_to_the_dying,
            args=(conversation_id, text),
            kwargs={"client_id": text},
            daemon=True,
        ).start()

    def cancel(self, turn_id: str, **fields: Any) -> httpx.Response:
        """Ask for the end of a turn."""
        return self.post(f"/api/turns/{turn_id}/abort", fields)

    def cancel_with_the_dying(self, turn_id: str) -> None:
        """Ask a process for the end of a turn that may be gone before it can answer."""
        with suppress(httpx.TransportError):
            self.cancel(turn_id)

    def resume(self, conversation_id: str) -> httpx.Response:
        """Let a parked conversation go on."""
        return self.post(f"/api/conversations/{conversation_id}/resume")

    def approve(self, turn_id: str, *, within: float = PATIENCE) -> None:
        """Let the first call that waits for a decision run."""

        def waiting() -> str | None:
            calls = self.turn(turn_id)["calls"]
            return next((c["tool_id"] for c in calls if c["status"] == "awaiting_approval"), None)

        tool_id = eventually_sync(waiting, timeout=within)
        path = f"/api/turns/{turn_id}/tools/{tool_id}/decision"
        assert self.post(path, {"decision": "approve"}).is_success

    def turn(self, turn_id: str) -> dict[str, Any]:
        """Return a turn with its calls."""
        return _good(self.get(f"/api/turns/{turn_id}"))

    def events(self, turn_id: str) -> list[dict[str, Any]]:
        """Return the stored events of a turn."""
        return list(_good(self.get(f"/api/turns/{turn_id}/events"))["events"])

    def history(self, conversation_id: str) -> dict[str, Any]:
        """Return what the model reads."""
        return _good(self.get(f"/api/conversations/{conversation_id}/history"))

    def is_running(self, turn_id: str, *tool_names: str) -> bool:
        """Return whether calls of these tools run in the turn."""
        calls = self.turn(turn_id)["calls"]
        running = {call["tool_name"] for call in calls if call["status"] == "running"}
        return running >= set(tool_names)

    def until_running(self, turn_id: str, *tool_names: str, within: float = PATIENCE) -> None:
        """Wait until calls of these tools run."""
        eventually_sync(lambda: self.is_running(turn_id, *tool_names), timeout=within)

    def until_ended(self, turn_id: str, *, within: float = PATIENCE) -> dict[str, Any]:
        """Wait for the end of a turn and return it."""

        def ended() -> dict[str, Any] | None:
            turn = self.turn(turn_id)
            return turn if turn["status"] in ENDED else None

        return eventually_sync(ended, timeout=within)


class Administrator:
    """Somebody who has signed in to the admin of one web process; the password is the name."""

    def __init__(self, url: str, name: str) -> None:
        self._http = httpx.Client(
            base_url=url, trust_env=False, timeout=LONG_PATIENCE, follow_redirects=True
        )
        self.read("/admin/login/")
        self.submit("/admin/login/?next=/admin/", username=name, password=name)

    def close(self) -> None:
        """Let the connections go."""
        self._http.close()

    def read(self, path: str, **query: str) -> str:
        """Return a page."""
        answer = self._http.get(path, params=query)
        assert answer.is_success, (answer.status_code, path)
        return answer.text

    @contextmanager
    def download(self, path: str, **query: str) -> Iterator[Iterator[bytes]]:
        """Read a file piece by piece, and keep none of them."""
        with self._http.stream("GET", path, params=query) as answer:
            assert answer.is_success, (answer.status_code, path)
            yield answer.iter_raw()

    def submit(self, path: str, **fields: str) -> str:
        """Send a form, which the admin accepts: return the page that it shows then."""
        token = self._http.cookies["csrftoken"]
        answer = self._http.post(path, data=fields, headers={"X-CSRFToken": token})
        assert answer.is_success, (answer.status_code, path)
        assert answer.history, answer.text
        return answer.text

    def limit(self, tool_name: str, **limits: str) -> None:
        """Give a tool limits of its own, as a person writes them."""
        self.submit(
            "/admin/governance/toolpolicy/add/",
            **{
                **dict.fromkeys(("timeout_ms", "idle_timeout_ms", "ceiling_ms", "max_running"), ""),
                "note": "",
                "revision": "",
                "is_active": "on",
                "tool_enabled": "on",
                "tool_name": tool_name,
                **limits,
            },
        )


class WebSocketClient(threading.Thread):
    """A tab that is open: collects frames, and after a break goes on where it was, at the next address."""

    def __init__(self, urls: Sequence[str], token: str, conversation_id: str) -> None:
        super().__init__(name="watcher", daemon=True)
        self.frames: list[dict[str, Any]] = []
        self.close_codes: list[int | None] = []
        self.last_seq = 0
        self.is_connected = threading.Event()
        self._addresses = itertools.cycle(
            [f"{url.replace('http', 'ws', 1)}/ws/conversations/{conversation_id}/" for url in urls]
        )
        self._token = token
        self._socket: Connection | None = None
        self._has_left = threading.Event()
        self.start()

    def run(self) -> None:
        """Watch until told to leave."""
        while not self._has_left.is_set():
            try:
                self._watch()
            except (OSError, EOFError, TimeoutError, InvalidHandshake, InvalidMessage):
                pass
            except ConnectionClosed as closed:
                self.close_codes.append(closed.rcvd.code if closed.rcvd else None)
            self.is_connected.clear()
            self._has_left.wait(0.05)

    def send(self, **frame: Any) -> None:
        """Send a frame over the open socket."""
        assert self._socket is not None
        self._socket.send(json.dumps(frame))

    def cut(self) -> None:
        """Lose the connection as a network does: no close frame."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.socket.shutdown(socket.SHUT_RDWR)

    def leave(self) -> None:
        """Close the tab."""
        self._has_left.set()
        if self._socket is not None:
            self._socket.close()
        self.join(timeout=PATIENCE)

    def events(self) -> list[dict[str, Any]]:
        """Return the numbered events that came, in the order of their coming."""
        return [frame for frame in list(self.frames) if _is_event(frame)]

    @property
    def welcomes(self) -> int:
        """How often it was let in."""
        return sum(frame["type"] == "welcome" for frame in list(self.frames))

    def find(self, type: str, **fields: Any) -> dict[str, Any] | None:
        """Return the first frame of this type with these fields."""
        wanted = {"type": type, **fields}
        return next((frame for frame in list(self.frames) if wanted.items() <= frame.items()), None)

    def until(self, type: str, /, *, within: float = PATIENCE, **fields: Any) -> dict[str, Any]:
        """Wait for a frame."""
        return eventually_sync(lambda: self.find(type, **fields), timeout=within)

    def _watch(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        with connect(
            next(self._addresses),
            additional_headers=headers,
            open_timeout=5,  # it tries again
            close_timeout=1,
            proxy=None,
            max_size=None,
        ) as connection:
            self._socket = connection
            hello: dict[str, Any] = {"type": "hello", "protocol": 1}
            if self.frames:
                hello["after"] = self.last_seq
            connection.send(json.dumps(hello))
            while not self._has_left.is_set():
                self._take(json.loads(connection.recv()))

    def _take(self, frame: dict[str, Any]) -> None:
        frame["_received"] = time.monotonic()
        if frame["type"] == "snapshot" or _is_event(frame):
            self.last_seq = frame["seq"]
        self.frames.append(frame)
        if frame["type"] == "snapshot" or (frame["type"] == "welcome" and len(self.frames) > 1):
            self.is_connected.set()


def _is_event(frame: dict[str, Any]) -> bool:
    return "seq" in frame and frame["type"] != "snapshot"


def _good(response: httpx.Response) -> dict[str, Any]:
    assert response.is_success, (response.status_code, response.text[:500])
    answer: dict[str, Any] = response.json()
    return answer
