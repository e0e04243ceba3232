"""A person with a browser: signs in, opens conversations, and notices every error that the browser reports."""

import re
from typing import Any

from playwright.async_api import BrowserContext, ConsoleMessage, Page, expect

from tests.e2e.chat import Chat
from tests.e2e.site import Site


class BrowserUser:
    """One browser context of one site."""

    def __init__(self, site: Site, context: BrowserContext) -> None:
        self.site = site
        self.context = context
        self._problems: list[str] = []
        self._expected: list[str] = []
        self.has_scripts = False
        context.on("page", self._watch)

    def leave(self) -> None:
        """Watch the tabs no longer."""
        self.context.remove_listener("page", self._watch)

    async def add_script(self, script: str) -> None:
        """Run a script in every page before its own. A context keeps it for good."""
        self.has_scripts = True
        await self.context.add_init_script(script)

    @property
    def problems(self) -> list[str]:
        """What the browser complained about: script errors, refused resources, violations of the page's policy."""
        patterns = [re.compile(pattern) for pattern in self._expected]
        return [
            text for text in self._problems if not any(pattern.search(text) for pattern in patterns)
        ]

    def expect_problem(self, pattern: str) -> None:
        """Take complaints that match for what they are: the test has caused them."""
        self._expected.append(pattern)

    def expect_connection_loss(self) -> None:
        """Expect what a lost server or network makes the browser say; at which call it notices is chance."""
        self.expect_problem(
            r"WebSocket connection to"
            r"|net::ERR_(CONNECTION_\w+|EMPTY_RESPONSE|INCOMPLETE_CHUNKED_ENCODING"
            r"|INTERNET_DISCONNECTED|NETWORK_CHANGED|SOCKET_NOT_CONNECTED)"
        )

    async def open(self, path: str) -> Page:
        """Open an address of the site in a new tab."""
        page = await self.context.new_page()
        await page.goto(f"{self.site.url}{path}")
        return page

    async def sign_in(self, page: Page, name: str = "demo") -> None:
        """Fill in the form that the tab shows."""
        await page.get_by_label("Username").fill(name)
        await page.get_by_label("Password").fill(self.site.password(name))
        await page.get_by_role("button", name="Sign in").click()

    async def start_conversation(self, said: str = "", *, page: Page | None = None) -> Chat:
        """Make a conversation by the API, as programs do, open it in a new tab, and say something there."""
        made = await self.post("/api/conversations")
        page = page or await self.context.new_page()
        await page.goto(f"{self.site.url}/c/{made['conversation_id']}/")
        chat = await self._ready(page)
        if said:
            await chat.say(said)
        return chat

    async def post(self, path: str) -> Any:
        """Ask the site for something as a program does, without a page; return what it answers."""
        cookies = {cookie["name"]: cookie["value"] for cookie in await self.context.cookies()}
        answer = await self.context.request.post(
            f"{self.site.url}{path}",
            headers={"X-CSRFToken": cookies["csrftoken"], "Origin": self.site.url},
            data={},
        )
        assert answer.ok, await answer.text()
        return await answer.json()

    async def begin(self, page: Page) -> Chat:
        """Press the button of the list that the tab shows: the conversation begins with its first message."""
        await page.get_by_role("button", name="New conversation").first.click()
        chat = Chat(page)
        await expect(chat.connection).to_have_attribute("data-status", "new")
        return chat

    async def join(self, chat: Chat) -> Chat:
        """Open a conversation in another tab."""
        page = await self.context.new_page()
        await page.goto(chat.page.url)
        return await self._ready(page)

    async def _ready(self, page: Page) -> Chat:
        chat = Chat(page)
        await expect(chat.connection).to_have_attribute("data-status", "online")
        return chat

    def _watch(self, page: Page) -> None:
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self._problems.append(f"script error: {error}"))

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            where: Any = message.location
            self._problems.append(f"{message.type}: {message.text} ({where.get('url', '')})")
