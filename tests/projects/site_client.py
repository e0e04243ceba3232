"""Somebody with a browser in a host project: signs in, looks at every page and file, talks to the agent."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin, urlsplit
from uuid import uuid4

import httpx
from websockets.sync.client import connect

from tests.projects.hosts import PASSWORD
from tests.support import LONG_PATIENCE, eventually_sync

PAGES = (
    "/assistant/",
    "/assistant/api/docs",
    "/admin/",
    "/admin/governance/toolpolicy/",
    "/admin/governance/toolpolicy/add/",
    "/admin/turns/turn/",
    "/admin/webchat/apitoken/add/",
)

_NAMED = {
    "html": r'<(?:link|script|img)\b[^>]*?\b(?:href|src)="([^"]+)"',
    "css": r"""(?:url\(|@import )["']?(?!url)([^"')]+)""",
    "javascript": r"""\b(?:from|import)\s*\(?\s*["']([./][^"']+)["']""",
}


class SiteClient(httpx.Client):
    """Somebody with a browser, who may be signed in."""

    def __init__(self, url: str) -> None:
        super().__init__(
            base_url=url, trust_env=False, follow_redirects=True, timeout=LONG_PATIENCE
        )
        self.headers["Referer"] = url

    def sign_in(self, page: str, *, name: str) -> None:
        """Fill in the form."""
        self.get(page)
        self.post_form(page, username=name, password=PASSWORD)
        assert "sessionid" in self.cookies

    def post_form(self, page: str, **fields: str) -> httpx.Response:
        """Send a form, as who was given a token by an earlier page."""
        return self.post(page, data={**fields, "csrfmiddlewaretoken": self.cookies["csrftoken"]})

    def files_of(self, *pages: str) -> dict[str, int]:
        """Get every file that the pages name, and those that these name; return the statuses."""
        answers: dict[str, int] = {}
        waiting = [urljoin(str(self.base_url), page) for page in pages]
        while waiting:
            url = waiting.pop().partition("#")[0]
            if url in answers:
                continue
            answer = self.get(url)
            answers[url] = answer.status_code
            kind = answer.headers.get("Content-Type", "")
            text = re.sub(r"/\*.*?\*/|^\s*//.*$", "", answer.text, flags=re.DOTALL | re.MULTILINE)
            for name, pattern in _NAMED.items():
                if name in kind:
                    waiting += [
                        urljoin(url, named)
                        for named in re.findall(pattern, text)
                        if urlsplit(named).scheme in ("", "http", "https")
                    ]
        return {urlsplit(url).path: status for url, status in answers.items()}


class ApiClient:
    """A program that uses the HTTP API with a token."""

    def __init__(self, api: str, *, token: str) -> None:
        self._http = httpx.Client(
            trust_env=False, timeout=LONG_PATIENCE, headers={"Authorization": f"Bearer {token}"}
        )
        self._api = api

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def run_turn(self, text: str) -> dict[str, Any]:
        """Send a message to a new conversation; return the turn once it is completed."""
        turn = self._send(text)
        return self._once(turn, lambda state: state["status"] == "completed")

    def cancel_turn(self, text: str) -> dict[str, Any]:
        """Cancel the turn of a message while its first call runs; return the turn once it has ended."""
        turn = self._send(text)
        self._once(turn, lambda state: [call["status"] for call in state["calls"]] == ["running"])
        answer = self._http.post(f"{turn}/abort", json={})
        assert answer.status_code == 200, answer.text
        return self._once(turn, lambda state: state["status"] == "cancelled")

    def _send(self, text: str) -> str:
        begun = self._http.post(f"{self._api}/conversations", json={}).json()
        messages = f"{self._api}/conversations/{begun['conversation_id']}/messages"
        sent = self._http.post(messages, json={"text": text}).json()
        return f"{self._api}/turns/{sent['turn_id']}"

    def _once(self, turn: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        states: list[dict[str, Any]] = []
        eventually_sync(
            lambda: states.append(self._http.get(turn).json()) or is_so(states[-1]),
            timeout=LONG_PATIENCE,
        )
        return states[-1]


def visit_pages(url: str, *, name: str) -> None:
    """Sign in, open a conversation, and get every file that a page names."""
    with SiteClient(url) as site_client:
        files = site_client.files_of("/assistant/login/")
        site_client.sign_in("/assistant/login/", name=name)
        conversation = site_client.post_form("/assistant/c/new/").url.path
        files |= site_client.files_of(conversation, *PAGES)
        assert {path: status for path, status in files.items() if status != 200} == {}
        for file in ("webchat/js/chat.js", "webchat/js/state/reducer.js", "webchat/css/page.css"):
            assert f"/static/{file}" in files
        assert any(path.startswith("/static/admin/css/") for path in files)
        _run_a_turn(site_client, conversation_id=conversation.split("/")[-2])


def _run_a_turn(site_client: SiteClient, *, conversation_id: str) -> None:
    """Say something on the socket, and see the answer there."""
    url = str(site_client.base_url.copy_with(scheme="ws")).rstrip("/")
    cookie = f"sessionid={site_client.cookies['sessionid']}"
    with connect(
        f"{url}/ws/conversations/{conversation_id}/",
        additional_headers={"Cookie": cookie},
        origin=str(site_client.base_url).rstrip("/"),
        proxy=None,
        open_timeout=LONG_PATIENCE,
        ping_interval=None,
    ) as socket:
        for frame in (
            {"type": "hello", "protocol": 1},
            {"type": "message", "client_id": str(uuid4()), "text": "wait 0"},
        ):
            socket.send(json.dumps(frame))
        seen: list[str] = []

        def is_over() -> bool:
            seen.append(json.loads(socket.recv(timeout=LONG_PATIENCE))["type"])
            return seen[-1] == "turn_end"

        eventually_sync(is_over, timeout=LONG_PATIENCE)
