"""What tools and models say is text: nothing of it runs, and nothing of it becomes part of the page."""

import json
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.e2e.site import Site
from tests.e2e.test_accessibility import PHONE, SCROLLED_SIDEWAYS
from tests.e2e.test_call_images import PROGRAM, begin

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCRIPT = "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"


async def test_html_and_scripts_of_tools_and_models_stay_text(browser_user):
    chat = await browser_user.start_conversation()
    await chat.say(f'run echo "{SCRIPT}"')
    await expect(chat.answers.last).to_contain_text("succeeded")
    await chat.cards.get_by_role("button", expanded=False).click()
    await expect(chat.cards.get_by_label("Result", exact=True)).to_contain_text(SCRIPT)
    await chat.say(f"say **bold** {SCRIPT} <b>x</b> [l](javascript:alert(1)) ![p](//example.org/p)")
    await expect(chat.answers.last.locator("strong")).to_have_text("bold")
    await expect(chat.sent.last).to_contain_text("**bold** <script>")
    await chat.page.reload()
    await expect(chat.answers.last.locator("strong")).to_have_text("bold")
    assert await chat.transcript.locator("script, img, b, a[href^=javascript]").count() == 0
    assert await chat.page.evaluate("window.hit") is None


ADD_SERVER = f"""
from governance.models import McpServer
McpServer.objects.create(name="unruly", command={f"{PROGRAM} posing"!r})
"""
FRAMES = """
    [a](javascript:window.hit=1) [b](data:text/html,x) [c](//example.org/c) ![d](//example.org/d.png)

    <dialog open><form action="//example.org"><input type="password"></form></dialog>
    <style>* { display: none }</style><link rel="stylesheet" href="//example.org/e.css">
    <p id="question" class="question" style="position: fixed">Allow once</p><iframe src="//example.org"></iframe>

    ```"><img src=x onerror=window.hit=1>
    <span class="k">x</span>
    ```
"""
PARTS = "script, img, b, dialog, form, input, style, link, iframe, object, svg:not(.icon), [id], [style]"


async def test_a_servers_titles_results_and_an_answers_markdown_are_no_part_of_the_page(
    open_browser, tmp_path: Path
):
    site = Site(tmp_path, GOVERNANCE_APPROVAL="*=once_per_conversation")
    try:
        site.carry_out(ADD_SERVER)
        site.start()
        chat = await begin(await open_browser(site))
        page = chat.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.set_viewport_size(PHONE)
        await chat.say(f"call unruly_echo {json.dumps({'text': FRAMES + SCRIPT})}")
        await expect(chat.question.locator("code").first).to_have_text("unruly_echo")
        assert "\u202e" not in await chat.question.inner_text()
        for control in (".question-once", ".question-deny-open"):
            await expect(chat.question.locator(control)).to_be_in_viewport(ratio=1)
        assert await chat.question.locator("img, dialog, style").count() == 0
        await chat.question.get_by_role("button", name="Show all").click()
        await chat.question.locator(".question-once").click()
        await chat.has_ended()
        await chat.say(f"say\n{FRAMES}")
        await chat.has_ended()
        assert await page.locator(".message-text, .call-body").locator(PARTS).count() == 0
        links = chat.answers.last.locator(".message-text a")
        assert await links.evaluate_all("links => links.map((link) => link.href)") == [
            "http://example.org/c"
        ]
        assert await page.evaluate(SCROLLED_SIDEWAYS) == []
        assert await page.evaluate("window.hit") is None
        assert [url for url in asked if not url.startswith(site.url)] == []
        await expect(chat.composer).to_be_editable()
    finally:
        site.leave()
