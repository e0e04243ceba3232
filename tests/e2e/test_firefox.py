"""A tour in another browser: sign in, chat, cancel, approve."""

import os

import pytest

from tests.e2e.firefox import firefox_path, started

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(
        not firefox_path() and os.environ.get("CI") != "true", reason="no Firefox is installed"
    ),
]

INPUT = "#composer-input"
AT_REST = "document.querySelector('#running-bar').hidden"


async def test_a_tour_in_firefox(site, tmp_path):
    async with started(tmp_path) as firefox:
        await firefox.open(f"{site.url}/login/")
        await firefox.type("[name=username]", "demo")
        await firefox.type("[name=password]", site.password("demo"), enter=True)
        await firefox.until("location.pathname === '/'")
        await firefox.click("main .new-conversation button")
        await firefox.until_text("#connection", "New conversation")

        await firefox.type(INPUT, "say **Grüße** & <i>love</i>", enter=True)
        await firefox.until_text("article.message-agent strong", "Grüße")
        await firefox.until_text("article.message-agent", "<i>love</i>")
        await firefox.until(AT_REST)

        await firefox.type(INPUT, "within 30min wait 600", enter=True)
        await firefox.until("document.querySelector('tool-call[data-status=running]')")
        await firefox.click("#cancel-turn")
        await firefox.until_text(".turn-end", "Task cancelled")
        await firefox.until(AT_REST)

        await firefox.type(INPUT, 'call list_files {"path": "."}', enter=True)
        await firefox.until_text("#question", "List files")
        await firefox.click("#question .button-primary")
        await firefox.until(AT_REST)
        await firefox.until("document.querySelectorAll('tool-call[data-status=succeeded]').length")
        assert firefox.problems == []
