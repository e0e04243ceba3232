"""The page and the admin's limits for somebody who reads German: every word, and what runs, fails and is asked."""

import gettext
import re
from functools import cache

import pytest
from playwright.async_api import Page, expect

from tests.e2e.axe import UP_TO_AA, findings
from tests.e2e.chat import Chat
from tests.e2e.site import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="session")

MO = "locale/de/LC_MESSAGES/django.mo"
PLACE = re.compile(r"\{\w+\}|%\(\w+\)[sd]")
# Words of English that no German sentence of ours has.
ENGLISH = re.compile(
    r"\b(the|of|and|is|are|with|from|your|you|this|that|turn|conversation|cancel|search|send|message)\b",
    re.IGNORECASE,
)
WORDS = """
    () => {
        const of = [document.title];
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        const others = "script, style, code, pre, kbd, .message-text, .call-body, .call-input, .question-description, #user-tools, .viewer-name";
        while (walker.nextNode()) {
            if (!walker.currentNode.parentElement.closest(others)) of.push(walker.currentNode.data);
        }
        for (const each of document.querySelectorAll("[aria-label], [title], [placeholder]")) {
            for (const name of ["aria-label", "title", "placeholder"]) {
                if (!each.closest(others)) of.push(each.getAttribute(name) ?? "");
            }
        }
        return of.map((text) => text.trim()).filter(Boolean);
    }
"""


async def english_in(page: Page) -> list[str]:
    """Return what reads as English, but for titles: they are what people have said."""
    titles = [text for text in await page.locator(".conversation-title").all_inner_texts() if text]
    return [
        text
        for text in await page.evaluate(WORDS)
        if ENGLISH.search(text) and not any(title in text for title in titles)
    ]


async def sign_in(person, name: str = "demo") -> Page:
    page = await person.open("/login/")
    assert await english_in(page) == []
    await page.get_by_label("Benutzername").fill(name)
    await page.get_by_label("Passwort").fill(person.site.password(name))
    await page.get_by_role("button", name="Anmelden").click()
    await expect(page.get_by_role("heading", name="Unterhaltungen")).to_be_visible()
    return page


async def test_the_whole_page_is_german(open_browser, site):
    person = await open_browser(site, user=None, locale="de-DE")
    page = await sign_in(person)
    assert await english_in(page) == []
    await page.get_by_role("button", name="Neue Unterhaltung").first.click()
    chat = Chat(page)
    await expect(chat.connection).to_have_text("Neue Unterhaltung")
    await expect(page.locator("html")).to_have_attribute("lang", "de")
    assert await english_in(page) == []


async def test_the_page_of_limits_is_german_and_says_in_german_what_is_wrong(open_browser, site):
    person = await open_browser(site, user=None, locale="de-DE")
    page = await sign_in(person, "admin")
    await page.goto(f"{site.url}/admin/governance/toolpolicy/")
    await expect(page.get_by_role("heading", name="Limits von Werkzeugen").first).to_be_visible()
    assert [text for text in await english_in(page) if "Turnkeeper" not in text] == []
    await page.locator("summary", has_text="exec").click()
    await page.get_by_label("Gesamtlimit: exec").fill("90")
    await page.get_by_role("button", name="Sichern").click()
    await expect(page.locator(".errorlist").first).to_contain_text(
        "hat keine Einheit: es könnte 90 ms"
    )


@cache
def untranslated() -> frozenset[str]:
    """The sentences of the catalogues whose German is another one: none of them may be read on a German page.

    What has a place for a value in it is compared around that place.
    """
    found: set[str] = set()
    for app in ("console", "governance", "turns", "webchat"):
        with (ROOT / app / MO).open("rb") as compiled:
            catalogue = gettext.GNUTranslations(compiled)
        for english, german in catalogue._catalog.items():
            said = english[0] if isinstance(english, tuple) else english
            if said and german != said and len(said.split()) > 1:
                found.update(part for part in PLACE.split(said) if len(part.split()) > 2)
    return frozenset(found)


async def english_sentences_in(page: Page) -> list[str]:
    seen = await page.evaluate(WORDS)
    return [f"{english} | {text}" for text in seen for english in untranslated() if english in text]


async def test_a_conversation_is_german_from_the_message_to_the_settings(open_browser, site):
    assert "Stop the task?" in untranslated()
    person = await open_browser(site, user=None, locale="de-DE")
    page = await sign_in(person)
    await page.get_by_role("button", name="Neue Unterhaltung").first.click()
    chat = Chat(page)
    await expect(chat.connection).to_have_text("Neue Unterhaltung")
    composer = page.get_by_label("Nachricht an den Agenten")
    stop = page.get_by_role("button", name=re.compile("^Aufgabe abbrechen"))

    async def is_german() -> None:
        assert await english_in(page) == []
        assert await english_sentences_in(page) == []
        assert await findings(page, UP_TO_AA) == []  # such as words in the names of buttons

    async def say(text: str) -> None:
        await composer.fill(text)
        await composer.press("Enter")

    await say("say Hallo")  # a message and its answer
    await expect(chat.answers.last).to_contain_text("Hallo")
    await expect(stop).to_be_hidden()
    await is_german()
    await say("within 30min wait 610\nwithin 200ms wait 62")  # cards at work and out of time
    await expect(chat.card("seconds: 62")).to_have_attribute("data-status", "timed_out")
    await chat.card("seconds: 610").get_by_role("button", expanded=False).click()
    await is_german()
    await stop.first.click()
    await expect(page.locator(".turn-end").last).to_contain_text("Aufgabe abgebrochen")
    await is_german()
    await say("list")  # a question
    await expect(chat.question).to_be_visible()
    await is_german()
    await chat.question.get_by_role("button", name=re.compile("^Ablehnen")).first.click()
    await is_german()
    await page.keyboard.press("Escape")
    await chat.question.get_by_role("button", name=re.compile("^Einmal erlauben")).click()
    await expect(chat.question).to_be_hidden()
    await expect(stop).to_be_hidden()
    await is_german()
    await page.get_by_label("Farbschema").select_option("Dunkel")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.get_by_role("button", name="Optionen").first.click()
    await expect(page.get_by_role("menu")).to_be_visible()
    await is_german()
