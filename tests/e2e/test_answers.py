"""Answers that one can work with."""

import os
import re
import textwrap
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.chat import click_and_see
from tests.e2e.test_accessibility import check
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")
TOOK = re.compile(r"^\d+:\d+\s[AP]M · (< 0\.1|[\d.]+) s · [\d,]+ tokens?$")

ANSWER = """Look:

```python
def greet(name: str) -> str:
    # A comment
    return f"Hello {name}" if len(name) > 3 else 42
```

| Name | Price |
|---|--:|
| Tulip | 3 |

See https://tulips.example/list. ![A tulip](https://evil.example/tulip.png)"""
# The local agent says the indented lines, too.
TOLD = "say " + textwrap.indent(ANSWER, "  ").lstrip()


async def test_code_in_an_answer_has_colours_and_is_copied(browser_user: BrowserUser):
    await browser_user.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat = await browser_user.start_conversation()
    loaded: list[str] = []
    chat.page.on("request", lambda request: loaded.append(request.url))
    # The end replaces the elements of the growing block, and a detached element has no style.
    await chat.ask(TOLD)
    answer = chat.answers.last
    await expect(answer.locator(".code-language")).to_have_text("python")
    word = answer.locator(".code-block .k").first
    plain = await answer.locator("pre").evaluate("node => getComputedStyle(node).color")
    assert await word.evaluate("node => getComputedStyle(node).color") != plain
    await click_and_see(answer.get_by_role("button", name="Copy this code"), "Copied")
    copied = await chat.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("def greet(name: str) -> str:\n    # A comment\n")
    price = answer.get_by_role("cell", name="3", exact=True)
    assert await price.evaluate("node => getComputedStyle(node).textAlign") == "right"
    await expect(answer.get_by_role("link", name="https://tulips.example/list")).to_be_visible()
    await expect(answer.get_by_text("https://evil.example/tulip.png")).to_be_visible()
    if directory := os.environ.get("PICTURES"):
        await chat.page.screenshot(path=Path(directory) / "answer.png")
    await check(chat.page)
    assert not [url for url in loaded if "example" in url]


async def test_a_table_that_is_wider_than_a_phone_is_scrolled_with_the_keyboard(
    browser_user: BrowserUser,
):
    chat = await browser_user.start_conversation()
    await chat.page.set_viewport_size({"width": 390, "height": 844})
    rows = [f"| {' | '.join([cell] * 12)} |" for cell in ("Column", "---", "value")]
    await chat.ask("say Prices:\n\n" + textwrap.indent("\n".join(rows), "  "))
    table = chat.answers.last.get_by_role("table")
    assert await table.evaluate("table => table.scrollWidth > table.clientWidth")
    await check(chat.page)
    await table.focus()
    await chat.page.keyboard.press("ArrowRight")
    await eventually(lambda: table.evaluate("table => table.scrollLeft > 0"))


async def test_an_answer_is_copied_and_asked_for_again_and_says_what_it_took(
    browser_user: BrowserUser,
):
    await browser_user.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat = await browser_user.start_conversation("say **Tulips** are red.")
    actions = chat.turn("say **Tulips** are red.").locator(":scope > .message-actions")
    await expect(actions.locator(".message-facts")).to_have_text(TOOK)
    live = await actions.locator(".message-facts").inner_text()
    await click_and_see(actions.get_by_role("button", name="Copy the answer"), "Copied")
    assert await chat.page.evaluate("navigator.clipboard.readText()") == "**Tulips** are red."
    own = chat.turn("say **Tulips** are red.").get_by_role("button", name="Copy your message")
    await own.hover()
    row, answer = await own.bounding_box(), await chat.answers.first.bounding_box()
    assert row["y"] + row["height"] <= answer["y"]  # it covers nothing
    await click_and_see(own, "Copied")
    copied = await chat.page.evaluate("navigator.clipboard.readText()")
    assert copied == "say **Tulips** are red."
    await check(chat.page)
    await chat.page.reload()
    await expect(actions.locator(".message-facts")).to_have_text(live)
    again = actions.get_by_role("button", name="Try again")
    await again.dblclick()
    await expect(chat.sent).to_have_count(2)
    await chat.has_ended()
    await expect(chat.answers).to_have_count(2)
    await expect(actions.first.get_by_role("button", name="Try again")).to_be_hidden()


async def test_what_a_cancelled_turn_has_said_is_copied_and_asked_for_again(
    browser_user: BrowserUser,
):
    await browser_user.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat = await browser_user.start_conversation("slowly " + "word " * 1_000)
    await expect(chat.answers).to_contain_text("word word")
    await chat.page.keyboard.press("Escape")
    await chat.has_ended()
    actions = chat.page.locator(".turn > .message-actions")
    facts = actions.locator(".message-facts")
    await expect(facts).to_contain_text(re.compile(r" · [\d.]+ s"))
    live = await facts.inner_text()
    await click_and_see(actions.get_by_role("button", name="Copy the answer"), "Copied")
    copied = await chat.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("word word")
    await chat.page.reload()
    await expect(facts).to_have_text(live)
    await actions.get_by_role("button", name="Try again").click()
    await expect(chat.sent).to_have_count(2)
    await chat.cancel()
