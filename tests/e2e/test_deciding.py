"""A person decides on a call in the page: what is shown, buttons, keys, two tabs, what stands afterwards."""

import json
import re

import pytest
from playwright.async_api import expect

from tests.e2e.chat import Chat, state, was_cancelled
from tests.e2e.scripted_socket import ScriptedSocket
from tests.e2e.site import Site
from tests.e2e.test_accessibility import PHONE, check
from tests.e2e.test_call_images import ADD_SERVER, begin, opened

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATH = "a <b>bold</b> path\u202e\u200b \u3164p\u0430th"
SHOWN = "a <b>bold</b> path\\u{202e}\\u{200b} \\u{3164}p\\u{0430}th"


def ask(path: str = ".") -> str:
    """A message that makes the agent call a tool which is asked about."""
    return f"call list_files {json.dumps({'path': path})}"


def note(chat: Chat):
    """What stands beside the last call."""
    return chat.cards.last.locator(".call-note")


async def was_allowed(chat: Chat) -> None:
    """Wait until the last call has done its work, which it cannot without a yes."""
    await expect(chat.cards.last).to_have_attribute("data-status", "succeeded")


async def asked(chat: Chat, path: str = ".") -> None:
    """Let the agent call the tool, and wait for the question."""
    await chat.say(ask(path))
    await expect(chat.question).to_be_visible()


async def test_the_question_shows_all_that_would_run_and_nothing_of_it_is_html(browser_user):
    chat = await browser_user.start_conversation()
    await asked(chat, PATH)
    await expect(state(chat.cards.last)).to_have_text("waiting for a decision")
    await expect(chat.question.locator("dd pre")).to_have_text(SHOWN)
    await expect(chat.cards.last.locator(".call-input")).to_have_text(SHOWN)
    await expect(chat.question.locator("b")).to_have_count(0)
    await expect(chat.question).to_contain_text("List files wants to run. Allow it?")
    await expect(chat.question.locator("code")).to_have_text("list_files")
    await expect(chat.question).to_contain_text("The timers are paused until you answer")
    await expect(chat.question.get_by_role("timer")).to_contain_text("within 09:")
    await expect(chat.running_bar).to_contain_text("Waiting for your decision")
    await expect(chat.page.locator("#status")).to_be_empty()
    await expect(chat.question.locator(".question-description")).to_be_visible()
    await chat.question.get_by_text("About this tool").click()
    await expect(chat.question.locator(".question-description")).to_be_hidden()
    assert (await chat.page.title()).startswith("(1) Waiting for you · ")
    await expect(chat.page.locator("#alert")).to_have_text(
        "List files is waiting for your decision."
    )
    await chat.deny()
    await chat.has_ended()
    await expect(chat.page).not_to_have_title(re.compile("Waiting"))


async def test_the_focus_stays_in_the_question_while_it_is_decided(browser_user):
    chat = await browser_user.start_conversation()
    await asked(chat)
    once = chat.question.get_by_role("button", name="Allow once: List files", exact=True)
    await expect(once).to_be_enabled()
    where = "button => { button.focus(); button.click(); return document.activeElement.id; }"
    assert await once.evaluate(where) == "question"
    await expect(chat.question).to_be_hidden()
    await expect(chat.composer).to_be_focused()
    await chat.has_ended()


async def test_the_question_and_its_answers_are_in_sight_whatever_would_run(browser_user):
    chat = await browser_user.start_conversation("\n".join(f"say line {n}" for n in range(60)))
    await chat.has_ended()
    await asked(chat, "\n".join(f"line {n}" for n in range(300)))
    for size in (PHONE, {"width": 640, "height": 400}, {"width": 1280, "height": 850}):
        await chat.page.set_viewport_size(size)
        for name in ("Allow once: List files", "Deny…"):
            answer = chat.question.get_by_role("button", name=name, exact=True)
            await expect(answer).to_be_in_viewport(ratio=1)
    await check(chat.page)
    await chat.question.get_by_role("button", name="Deny…").click()
    await check(chat.page)
    await chat.deny()
    await chat.has_ended()


async def test_a_command_that_is_cut_says_so_and_is_allowed_once_all_of_it_was_shown(browser_user):
    chat = await browser_user.start_conversation("say Before.")
    await chat.has_ended()
    once = chat.question.get_by_role("button", name="Allow once: List files", exact=True)
    whole = chat.question.get_by_role("button", name="Show all 60 lines")
    for size in ({"width": 1366, "height": 625}, {"width": 390, "height": 480}):
        await chat.page.set_viewport_size(size)
        await asked(chat, "\n".join(f"line {n}" for n in range(60)))
        await expect(whole).to_be_visible()
        box = await chat.question.bounding_box()
        assert box["height"] <= 0.4 * size["height"]
        for name in ("Allow once: List files", "Deny…"):
            answer = chat.question.get_by_role("button", name=name, exact=True)
            await expect(answer).to_be_in_viewport(ratio=1)
        await expect(chat.question.get_by_role("button", name="Deny…")).to_be_enabled()
        await expect(once).to_be_disabled()
        if size["width"] == 390:
            await chat.question.locator(".question-what").evaluate("all => all.scrollTo(0, 5_000)")
            await expect(whole).to_be_hidden()
        else:
            await whole.press("Enter")
            await expect(chat.question).to_be_focused()
        await expect(once).to_be_enabled()
        await chat.deny()
        await chat.has_ended()


async def test_what_is_typed_may_answer_the_question_and_numbers_stand_digit_by_digit(browser_user):
    chat = await browser_user.start_conversation()
    call = 'call list_files {"path": ".", "_meta": {"order": 9007199254740993, "rate": 1.0}}'
    await chat.say(call)
    shown = re.compile(r'"order": 9007199254740993,\s+"rate": 1\.0')
    await expect(chat.question.locator("dd pre").last).to_have_text(shown)
    await chat.say("Yes")
    answer = chat.page.locator("#stop-question")
    await expect(answer).to_contain_text("Is that your answer to the question?")
    await chat.answer_stop_question(
        answer.get_by_role("button", name="Allow once", exact=True).click
    )
    await was_allowed(chat)
    await expect(chat.composer).to_have_value("")
    await chat.has_ended()
    await expect(chat.sent).to_have_count(1)
    await asked(chat)
    await chat.say("no")
    await chat.answer_stop_question(answer.get_by_role("button", name="Send").click)
    await expect(chat.queue).to_have_text("no")
    await expect(chat.composer).to_be_focused()
    await expect(
        chat.question.get_by_role("button", name="Allow once: List files", exact=True)
    ).to_be_enabled()
    await chat.page.keyboard.press("Control+Enter")  # from the empty field
    await was_allowed(chat)
    await chat.has_ended()


async def test_a_no_with_a_reason_is_sent_with_enter_and_survives_a_reload(browser_user):
    chat = await browser_user.start_conversation()
    await asked(chat)
    await chat.question.get_by_role("button", name="Deny…").click()
    reason = chat.question.get_by_label("Why not? The agent will read this.")
    await expect(reason).to_be_focused()
    await chat.page.keyboard.press("Control+Enter")
    await chat.page.keyboard.press("Escape")  # closes the field, and nothing else
    await expect(reason).to_be_hidden()
    await expect(chat.question).to_be_visible()
    await expect(chat.running_bar).to_be_visible()
    await chat.page.keyboard.press("Enter")  # the focus is on “Deny…” again
    await reason.fill("not <i>now</i>")
    await expect(chat.question.get_by_role("button", name="Deny: ")).to_be_enabled()
    await reason.press("Enter")
    await expect(state(chat.cards.last)).to_have_text("denied, did not run")
    await expect(note(chat)).to_have_text("Denied by you: not <i>now</i>")
    await chat.has_ended()
    await chat.page.reload()
    await expect(note(chat)).to_have_text("Denied by you: not <i>now</i>")


async def test_esc_closes_the_open_reason_from_anywhere_then_cancels_the_turn_and_denies_nothing(
    browser_user,
):
    chat = await browser_user.start_conversation()
    await asked(chat)
    await chat.question.get_by_role("button", name="Deny…").click()
    reason = chat.question.get_by_label("Why not? The agent will read this.")
    await reason.fill("not now")
    await chat.composer.click()
    await chat.page.keyboard.press("Escape")
    await expect(reason).to_be_hidden()
    await expect(chat.composer).to_be_focused()
    await expect(chat.cards.last).to_have_attribute("data-status", "awaiting_approval")
    await expect(chat.cancel_turn).to_be_enabled()
    await chat.question.get_by_role("button", name="Deny…").focus()
    await chat.page.keyboard.press("Escape")
    await was_cancelled(chat.cards.last)
    await expect(note(chat)).to_be_hidden()  # there a denial would stand
    await expect(chat.ending("cancelled")).to_be_visible()
    await chat.has_ended()


async def test_a_yes_for_the_conversation_is_asked_for_once_and_later_cards_say_so(browser_user):
    chat = await browser_user.start_conversation()
    await asked(chat)
    await chat.question.get_by_role(
        "button", name="Allow every call of List files in this conversation", exact=True
    ).click()
    await expect(note(chat)).to_have_text("Allowed by you for this conversation")
    await chat.has_ended()
    await chat.say(ask("."))
    await expect(chat.cards).to_have_count(2)
    await chat.has_ended()
    for _time in range(2):
        await expect(chat.cards.last).to_have_attribute("data-status", "succeeded")
        await expect(note(chat)).to_have_text("allowed earlier by you")
        await chat.page.reload()


async def test_a_reload_and_a_second_tab_show_the_question_and_the_answer(browser_user):
    chat = await browser_user.start_conversation()
    await asked(chat)
    await chat.page.reload()
    await expect(chat.question.get_by_role("timer")).to_contain_text("within 09:")
    tab = Chat(await browser_user.context.new_page())
    await tab.page.goto(chat.page.url)
    await tab.allow_once()
    for seen in (chat, tab):
        await expect(seen.question).to_be_hidden()
        await expect(note(seen)).to_have_text("Allowed by you")
    await chat.has_ended()
    await tab.page.close()


async def test_the_keys_decide_only_in_the_question_and_half_a_second_after_it_appeared(
    browser_user,
):
    chat = await browser_user.start_conversation()
    await chat.page.clock.install()
    await asked(chat)
    await expect(chat.composer).to_be_focused()  # who writes is not interrupted
    await chat.page.keyboard.press("Control+Enter")
    once = chat.question.get_by_role("button", name="Allow once: List files", exact=True)
    await chat.question.focus()
    await expect(chat.question).to_be_visible()
    await chat.page.clock.run_for(600)
    await expect(once).to_be_enabled()
    await chat.page.keyboard.press("Control+Enter")
    await was_allowed(chat)
    await expect(chat.composer).to_be_focused()
    await chat.has_ended()


async def test_a_double_click_decides_on_one_question_only(browser_user):
    chat = await browser_user.start_conversation("\n".join([ask("one"), ask("two")]))
    await expect(chat.question).to_contain_text("1 of 2")
    await chat.question.get_by_role("button", name=re.compile("^Allow once")).dblclick()
    await expect(chat.question.locator("dd pre")).to_have_text("two")
    await expect(chat.page.locator("#notice")).to_be_hidden()
    await expect(chat.card("two")).to_have_attribute("data-status", "awaiting_approval")
    await chat.page.keyboard.press("Escape")
    await chat.has_ended()


async def test_a_command_without_a_sandbox_is_asked_about_in_those_words(own_site_of, open_browser):
    site = own_site_of(GOVERNANCE_EXEC_SANDBOX="none", GOVERNANCE_APPROVAL="")
    person = await open_browser(site)
    chat = await person.start_conversation()
    await chat.say("run echo one")
    await expect(chat.question).to_contain_text(
        "Run this command on the server, without a sandbox?"
    )
    await expect(chat.question.locator("dd pre").first).to_have_text("echo one")
    await expect(
        chat.question.get_by_role("button", name="Allow every command in this conversation")
    ).to_be_visible()
    await check(chat.page)
    await chat.allow_once("Run a command")
    await chat.has_ended()


async def test_beside_the_title_of_a_servers_tool_stand_its_code_name_and_the_server(
    open_browser, tmp_path
):
    site = Site(tmp_path, GOVERNANCE_APPROVAL="*=once_per_conversation")
    try:
        site.carry_out(ADD_SERVER)
        site.start()
        chat = await begin(await open_browser(site))
        await chat.say(f"call unruly_echo {json.dumps({'text': PATH})}")
        await expect(chat.question.locator(".question-title")).to_have_text(
            "Echo it wants to run. Allow it?"
        )
        await expect(chat.question.locator("code")).to_have_text("unruly_echo")
        await expect(chat.question).to_contain_text("MCP server unruly")
        await expect(chat.question.locator("dd pre")).to_have_text(SHOWN)
        await check(chat.page)
        await chat.allow_once("Echo it")
        await chat.has_ended()
        card = await opened(chat)
        await expect(card.locator(".call-facts")).to_contain_text("unruly_echo · MCP server unruly")
    finally:
        site.leave()


async def test_a_cancel_while_it_waits_is_no_denial(browser_user):
    chat = await browser_user.start_conversation()
    await asked(chat)
    card = chat.cards.last
    await expect(card.get_by_role("button", name="Cancel List files")).to_have_count(0)
    await card.focus()
    await chat.page.keyboard.press("c")
    await was_cancelled(card)
    await expect(chat.question).to_be_hidden()
    await chat.has_ended()


QUESTION_BELOW = {
    "rule": "always",
    "requested_at": "2026-01-01T00:00:00+00:00",
    "expires_at": None,
    "expires_in_ms": 600_000,
    "can_remember": False,
    "host": "",
    "description": "",
    "question": "",
    "decision": None,
    "decided_at": None,
    "by": "",
    "reason": "",
    "remember": False,
    "turn_id": "below",
    "conversation_id": "elsewhere",
    "agent": "digger",
    "parent_turn_id": "",
    "parent_tool_id": "",
    "tool_id": "c1",
    "tool_name": "exec",
    "tool_title": "",
    "tool_server": "",
    "input": {"command": "dig"},
    "arguments": [{"name": "command", "value": "dig", "is_text": True}],
}


async def test_a_new_connection_takes_neither_reason_nor_focus_and_a_question_asked_anew_does(
    browser_user,
):
    page = await browser_user.context.new_page()
    socket = ScriptedSocket(turns=1, calls=0)
    await socket.stand_behind(page)
    chat = await browser_user.start_conversation(page=page)
    tell(socket, QUESTION_BELOW)
    await chat.question.get_by_role("button", name="Deny…").click()
    reason = chat.question.get_by_role("textbox")
    await reason.press_sequentially("Not")
    socket.greet()
    socket.begin_turn()
    await expect(chat.running_bar).to_be_visible()  # it is drawn before the overview comes
    await page.keyboard.type(" today.")
    tell(socket, QUESTION_BELOW)
    await expect(reason).to_have_value("Not today.")
    await expect(reason).to_be_focused()
    await expect(chat.composer).to_have_value("")
    tell(socket, {**QUESTION_BELOW, "requested_at": "2026-01-01T00:00:09+00:00"})
    await expect(reason).to_be_hidden()
    await chat.question.get_by_role("button", name="Deny…").click()
    await expect(reason).to_have_value("")


def tell(socket: ScriptedSocket, question: dict[str, object]) -> None:
    """Let the page know that a sub-agent asks."""
    overview = {"conversations": [], "questions": [question], "latest": None, "background": []}
    socket.send(type="overview", edited_at=None, **overview)
