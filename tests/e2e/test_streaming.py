"""An answer while it is written. What is finished is rendered, stays as it is, and is what a reload shows."""

import textwrap

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.chat import Chat
from tests.e2e.scripted_socket import LIVE, ScriptedSocket
from tests.e2e.test_accessibility import check

pytestmark = pytest.mark.asyncio(loop_scope="session")

BEGINNING = """# A **tulip**

Some *words* of it.

```python
def greet():

    return "<b>"
```

1. One
2. Two

"""


def slowly(text: str, *, words: int, end: str = "**end**") -> str:
    """Return what lets the agent say a text, then words, about twelve a second, then an end."""
    return "slowly " + textwrap.indent(text + "word " * words + end, "  ").lstrip()


# One ends while a test looks on, even on a slow machine. The other goes on until the test cancels it.
SLOWLY, ENDLESS = slowly(BEGINNING, words=150), slowly(BEGINNING, words=2_000)


def growing(chat: Chat) -> Locator:
    """Return the answer that is being written."""
    return chat.page.locator('article.message-agent[aria-busy="true"]')


async def is_rendered(answer: Locator) -> None:
    """Wait until the beginning is rendered, and its text is gone."""
    await expect(answer.locator("h1 strong")).to_have_text("tulip")
    await expect(answer.locator(".code-block .k").first).to_have_text("def")
    await expect(answer.locator("li")).to_have_text(["One", "Two"])
    await expect(answer).not_to_contain_text("```")


async def html_of(chat: Chat) -> str:
    return await chat.answers.last.locator(".message-text").inner_html()


async def cancel(chat: Chat) -> None:
    await chat.cancel()


async def test_what_is_finished_is_rendered_while_the_rest_is_written(browser_user: BrowserUser):
    await browser_user.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat = await browser_user.start_conversation(ENDLESS)
    answer = growing(chat)
    await is_rendered(answer)
    await expect(answer.locator(".growing-text")).to_contain_text("word word")
    await answer.get_by_role("button", name="Copy this code").click()
    copied = await chat.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith('def greet():\n\n    return "<b>"')
    await check(chat.page)
    await expect(answer).to_have_count(1)  # all of that while it was written
    await cancel(chat)


async def test_what_was_rendered_stays_when_the_answer_ends_and_after_a_reload(
    browser_user: BrowserUser,
):
    chat = await browser_user.start_conversation(SLOWLY)
    answer = growing(chat)
    await is_rendered(answer)
    await answer.locator("h1").evaluate(
        "head => { head.isMarked = true; getSelection().selectAllChildren(head); }"
    )
    await chat.has_ended()
    head = chat.answers.last.locator("h1")
    assert await head.evaluate("head => head.isMarked")
    assert await chat.page.evaluate("String(getSelection())") == "A tulip"
    await expect(chat.answers.last.locator("strong").last).to_have_text("end")
    live = await html_of(chat)
    await chat.page.reload()
    await expect(chat.answers.last.locator("strong").last).to_have_text("end")
    assert await html_of(chat) == live


NOTE_FIRST_PARAGRAPH = """() => {
  window.seen = new Set();
  new MutationObserver(() => {
    const first = document.querySelector('article.message-agent[aria-busy="true"] p');
    if (first) window.seen.add(first.textContent);
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""


async def test_a_link_that_is_explained_at_the_end_is_one_in_the_finished_answer(
    browser_user: BrowserUser,
):
    chat = await browser_user.start_conversation()
    await chat.page.evaluate(NOTE_FIRST_PARAGRAPH)
    said, end = "# Head\n\nSee [tulips] there.\n\n", "\n\n[tulips]: https://tulips.example/"
    await chat.ask(slowly(said, words=100, end=end))
    link = chat.answers.last.get_by_role("link", name="tulips")
    await expect(link).to_have_attribute("href", "https://tulips.example/")
    assert "See [tulips] there." in await chat.page.evaluate("[...window.seen]")


async def test_a_reload_shows_what_is_rendered_and_what_was_cut_off_stays_so(
    browser_user: BrowserUser,
):
    chat = await browser_user.start_conversation(ENDLESS)
    await is_rendered(growing(chat))
    await chat.page.reload()
    await is_rendered(growing(chat))
    await cancel(chat)
    await is_rendered(chat.answers.last)
    await expect(chat.answers.last.locator(".message-note")).to_be_visible()
    live = await html_of(chat)
    await chat.page.reload()
    await is_rendered(chat.answers.last)
    assert await html_of(chat) == live


async def test_what_was_lost_before_it_was_stored_stays_rendered_and_says_so(
    browser_user: BrowserUser,
):
    """A server that is killed in the first second of an answer has stored nothing of it."""
    page = await browser_user.context.new_page()
    socket = ScriptedSocket(turns=1, calls=0)
    await socket.stand_behind(page)
    chat = await browser_user.start_conversation(page=page)
    socket.begin_turn()
    head = "# A **tulip**\n\n"
    socket.send(type="text_delta", turn_id=LIVE, text=f"{head}And so", offset=0, step=1)
    html = "<h1>A <strong>tulip</strong></h1>\n"
    socket.send(type="text_html", turn_id=LIVE, offset=0, end=len(head), html=html)
    await expect(growing(chat).locator("h1 strong")).to_have_text("tulip")
    end = {"duration_ms": 200, "usage": {}, "error_code": None}
    socket.go_on(type="turn_end", status="interrupted", **end)
    answer = chat.answers.last
    await expect(answer.locator(".message-note")).to_contain_text("not saved")
    await expect(answer.locator("h1 strong")).to_have_text("tulip")
    await expect(answer.locator(".growing-text")).to_have_text("And so")
    await expect(answer).not_to_have_attribute("aria-busy", "true")


GROWING = (
    ("1. **One", "li strong", "One"),
    ("** and `two`\n2. [a](https://a.example/x) [b](javascript:alert(1)) c[0]", "li", None),
    ("\n\n```python\ndef f(", ".code-block pre code", "def f("),
    ("):\n    <b>\n```\n\n| A | B |\n|---|---|\n| c", "td", "c"),
    (" | d |\n\n## Hea", "h2", "Hea"),
    (
        "d\n\n<img src=x onerror=alert(1)> ![p](https://evil.example/p.png) " + "> " * 3_000,
        "h2",
        "Head",
    ),
)


async def test_the_block_that_is_written_is_drawn_as_it_grows_and_nothing_in_it_is_html(
    browser_user: BrowserUser,
):
    """The server has rendered nothing yet: a model may write one long list, or one long program."""
    page = await browser_user.context.new_page()
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    socket = ScriptedSocket(turns=1, calls=0)
    await socket.stand_behind(page)
    chat = await browser_user.start_conversation(page=page)
    socket.begin_turn()
    offset = 0
    answer = growing(chat).locator(".growing-text")
    for piece, place, text in GROWING:
        socket.send(type="text_delta", turn_id=LIVE, text=piece, offset=offset, step=1)
        offset += len(piece)
        if text:
            await expect(answer.locator(place).last).to_have_text(text)
    await expect(answer.locator("li")).to_have_text(
        ["One and two", "a [b](javascript:alert(1)) c[0]"]
    )
    await expect(answer.locator(".code-head")).to_contain_text("python")
    await expect(answer.locator("pre")).to_have_text("def f():\n    <b>")
    assert await answer.locator("a").evaluate_all("all => all.map(each => each.href)") == [
        "https://a.example/x"
    ]
    await expect(answer).to_contain_text("<img src=x onerror=alert(1)>")
    assert await answer.locator("img, script, b, [onerror], [style]").count() == 0
    assert not [url for url in loaded if "evil" in url]
    await check(chat.page)


HOSTILE = """# <script>alert(1)</script> head

<img src=x onerror=alert(1)> and ![a picture](https://evil.example/p.png) and [a link](javascript:alert(1))

```html"><script>alert(1)</script>
</code></pre><script>alert(1)</script>
```

| <b>a</b> | <svg/onload=alert(1)> |
|---|---|
| <style>*{display:none}</style> | <a href=https://evil.example>x</a> |

"""


async def test_hostile_text_that_streams_does_nothing(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    loaded: list[str] = []
    chat.page.on("request", lambda request: loaded.append(request.url))
    await chat.say(slowly(HOSTILE, words=2_000))
    answer = growing(chat)
    await expect(answer.locator("td").first).to_have_text("<style>*{display:none}</style>")
    await expect(answer.locator("h1")).to_have_text("<script>alert(1)</script> head")
    bad = "script, style, img, svg, iframe, [onerror], [onload], [style], a:not([href^='https:'])"
    assert await answer.locator(bad).count() == 0
    await expect(answer).to_have_count(1)
    await cancel(chat)
    assert await chat.answers.last.locator(bad).count() == 0
    assert not [url for url in loaded if "evil" in url]
