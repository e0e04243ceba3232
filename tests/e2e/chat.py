"""The chat page as a person sees it: what stands where, and what can be done there."""

from collections.abc import Awaitable, Callable

from playwright.async_api import Locator, Page, expect

from tests.support import eventually

# The last key of a composition in Safari, which has ended the composition by then. The answer: whether nobody took it.
KEY_OF_INPUT_METHOD = """(field, key) => field.dispatchEvent(
  new KeyboardEvent("keydown", { key, keyCode: 229, bubbles: true, cancelable: true }))"""
_CLICK_AND_SEE = """(button, word) => new Promise((done) => {
  const look = () => document.body.innerText.includes(word) && done();
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
  button.click();
})"""
_NEXT_FRAME = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Chat:
    """One tab with one conversation."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.composer = page.get_by_label("Message to the agent")
        self.connection = page.locator("#connection")
        self.cancel_turn = page.locator("#cancel-turn")
        self.running_bar = page.get_by_role("region", name="Current task")
        self.queue = page.locator(".queue-chip")
        self.question = page.locator("#question")
        self.transcript = page.get_by_role("log", name="Conversation")
        self.cards = page.locator("tool-call")
        self.answers = page.locator("article.message-agent")
        self.sent = page.locator("article.message-user")
        self.unsent = page.locator(".outbox article")
        live = ("queued", "running", "cancelling")
        self.live_turns = page.locator(", ".join(f'.turn[data-status="{each}"]' for each in live))

    async def say(self, text: str) -> None:
        """Type a message and send it with Enter; its lines are sent together."""
        await self.composer.fill(text)
        await self.composer.press("Enter")

    async def ask(self, text: str) -> None:
        """Say something, and wait until its turn has ended."""
        await self.say(text)
        await self.has_ended()

    async def cancel(self) -> None:
        """Cancel the task that runs, and wait for its end."""
        await self.cancel_turn.click()
        await self.has_ended()

    async def allow_once(self, tool: str = "List files") -> None:
        """Let the call run that is asked about."""
        await self.question.get_by_role("button", name=f"Allow once: {tool}", exact=True).click()

    async def deny(self, reason: str = "") -> None:
        """Refuse the call that is asked about."""
        opener = self.question.get_by_role("button", name="Deny…", exact=True)
        if await opener.get_attribute("aria-expanded") == "false":
            await opener.click()
        await self.question.get_by_label("Why not? The agent will read this.").fill(reason)
        await self.question.get_by_role("button", name="Deny: ").click()

    async def answer_stop_question(self, answer: Callable[[], Awaitable[None]]) -> None:
        """Answer whether to stop until it counts: not right after the question has appeared."""

        async def is_answered() -> bool:
            await answer()
            return await self.page.locator("#stop-question").is_hidden()

        await eventually(is_answered)

    def card(self, text: str) -> Locator:
        """Return the card of the call whose arguments are shown as `text`."""
        return self.cards.filter(has=self.page.locator(".call-input").get_by_text(text, exact=True))

    def turn(self, said: str) -> Locator:
        """Return the part of the page that belongs to one message."""
        return self.page.locator("section.turn").filter(
            has=self.page.locator(".message-user").get_by_text(said, exact=True)
        )

    def ending(self, status: str) -> Locator:
        """Return the line under a turn that says how it ended."""
        # A message that was never sent can be sent again.
        return self.transcript.locator(
            f".turn-end[data-status={status}]:not(:has(.turn-send_again))"
        )

    async def is_painted(self) -> None:
        """Wait until the page has drawn what it knows now."""
        await self.page.evaluate(_NEXT_FRAME)

    async def has_ended(self) -> None:
        """Wait until what was said has begun and is over; then no card may look as if it ran."""
        # The page draws before its next frame: until then it does not show what was just said.
        await self.is_painted()
        # Nothing runs either between Enter and the server's answer to it.
        await expect(self.unsent).to_have_count(0)
        await expect(self.live_turns).to_have_count(0)
        await expect(self.running_bar).to_be_hidden()
        await expect(self.cancel_turn).to_be_hidden()
        for status in ("pending", "running", "cancelling"):
            await expect(
                self.cards.and_(self.page.locator(f"[data-status={status}]"))
            ).to_have_count(0)


async def click_and_see(button: Locator, word: str) -> None:
    """Click, and wait for a word that soon goes again."""
    await button.evaluate(_CLICK_AND_SEE, word)


def state(card: Locator) -> Locator:
    """Return the word for what a card's call is doing, or how it ended."""
    return card.locator(".call-state")


async def has_started(card: Locator) -> None:
    """Wait until a card's call runs; the word for that becomes another one after ten seconds."""
    await expect(card).to_have_attribute("data-status", "running")


async def was_cancelled(card: Locator) -> None:
    """Wait until a card's call has ended because of a cancel."""
    await expect(card).to_have_attribute("data-status", "cancelled")


def clock(card: Locator) -> Locator:
    """Return the running clock of a card."""
    return card.get_by_role("timer")


def cancel_button(card: Locator) -> Locator:
    """Return the button that cancels a card's call."""
    return card.get_by_role("button", name="Cancel")


async def colour(card: Locator) -> str:
    """Return the colour that a card has."""
    return str(await state(card).evaluate("state => getComputedStyle(state).color"))
