"""The microphone of the chat page (C8): dictation, and messages that are sent at the first pause.

Headless browsers have no speech, so a script stands for the browser's part.
"""

import pytest
import pytest_asyncio
from playwright.async_api import Frame, Page, expect

from tests.e2e.chat import Chat, has_started
from tests.e2e.test_accessibility import check
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

SPEECH = """
window.spoken = [];
window.utterances = [];
window.tones = 0;
class FakeRecognition extends EventTarget {
  constructor() { super(); window.ear = this; }
  start() { window.starts = (window.starts ?? 0) + 1; this.dispatchEvent(new Event("start")); if (window.failsAtOnce) this.abort(); }
  stop() { this.abort(); }
  abort() { setTimeout(() => ["speechend", "end"].forEach((name) => this.dispatchEvent(new Event(name)))); }
  hear(transcript, isFinal) {
    this.dispatchEvent(Object.assign(new Event("result"), {resultIndex: 0, results: [{isFinal, 0: {transcript}}]}));
  }
  fail(error) { this.dispatchEvent(Object.assign(new Event("error"), {error})); this.abort(); }
}
window.SpeechRecognition = FakeRecognition;
delete window.webkitSpeechRecognition;
Object.defineProperty(window, "speechSynthesis", {value: {
  cancel() {},
  speak(utterance) { window.spoken.push(utterance.text); window.utterance = utterance; window.utterances.push(utterance); },
}});
"""

SENDS = 'if (location.origin !== "null") localStorage.setItem("webchat-voice-sends", "yes");'

# A headless browser never hides a page: this stands for what it would do.
AWAY = """
let isAway = location.origin !== "null" && sessionStorage.getItem("away") === "true";
Object.defineProperty(document, "visibilityState", { get: () => (isAway ? "hidden" : "visible") });
window.go = (away) => {
  isAway = away;
  sessionStorage.setItem("away", String(away));
  document.dispatchEvent(new Event("visibilitychange"));
};
"""
# What the page has asked before has its answer then, too.
ASKED = "navigator.permissions.query({ name: 'microphone' }).then(() => undefined)"
WAITS = "navigator.locks.query().then(({ pending }) => pending.length === 1)"
# The site's own headers forbid frames, so the page is written into an empty one.
INSERT_FRAME = """async () => {
  document.querySelector("iframe")?.remove();
  const page = await (await fetch(location.href)).text();
  const frame = document.createElement("iframe");
  document.body.prepend(frame);
  frame.contentDocument.write(page);
  frame.contentDocument.close();
}"""
IS_DROP_LEFT_TO_THE_BROWSER = """() => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File(["words"], "words.txt"));
  const over = new DragEvent("dragover", { dataTransfer, bubbles: true, cancelable: true });
  return document.querySelector("#chat").dispatchEvent(over);
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def dictator(open_browser, site):
    """Return a person whose browser recognises speech, and who has chosen nothing."""
    person = await open_browser(site)
    await person.add_script(SPEECH)
    return person


@pytest_asyncio.fixture(loop_scope="session")
async def speaker(dictator):
    """Return a person who has chosen that each message is sent at the first pause."""
    await dictator.add_script(SENDS)
    return dictator


def microphone(page: Page | Frame):
    return page.locator("#voice")


def sends_when_pausing(page: Page):
    return page.get_by_role("checkbox", name="Send when you pause")


async def hear(page: Page, text: str, *, is_final: bool = True) -> None:
    await page.evaluate("([text, final]) => window.ear.hear(text, final)", [text, is_final])


async def test_only_final_words_are_sent_and_a_spoken_stop_ends_the_turn_and_is_answered_aloud(
    speaker,
):
    chat = await speaker.start_conversation()
    button, note = microphone(chat.page), chat.page.locator("#voice-note")
    await expect(button).to_have_attribute("aria-pressed", "false")
    await button.click()
    await expect(button).to_have_attribute("aria-pressed", "true")
    await expect(button).to_have_accessible_name("Listening. Press to stop listening.")
    await expect(note).to_contain_text("Your browser's vendor may process your speech")
    await check(chat.page)
    await hear(chat.page, "wait", is_final=False)
    await expect(note).to_have_text("wait…")
    await hear(chat.page, "within 30min wait 600")
    await expect(note).to_have_text("Heard: within 30min wait 600")
    await has_started(chat.card("seconds: 600"))
    await expect(chat.sent).to_have_count(1)
    await is_asked_about(chat, "stop using so many words")
    await hear(chat.page, "Stop")
    await expect(chat.ending("cancelled")).to_be_visible()
    await eventually(lambda: chat.page.evaluate("window.spoken.length > 0"))
    [answer] = await chat.page.evaluate("window.spoken")
    await expect(chat.page.locator(".command-outcome")).to_have_text(answer)
    # What the page says itself is heard, too, and is no message.
    await hear(chat.page, answer)
    await chat.page.evaluate("window.utterance.dispatchEvent(new Event('error'))")
    await expect(note).to_contain_text("cannot read answers aloud")
    await chat.has_ended()
    await expect(chat.sent).to_have_count(2)  # a third one was taken back
    # Esc ends listening first, and the turn then.
    await chat.say("within 30min wait 610")
    await has_started(chat.card("seconds: 610"))
    await chat.page.keyboard.press("Escape")
    await expect(button).to_have_attribute("aria-pressed", "false")
    await expect(chat.cancel_turn).to_be_enabled()
    await chat.page.keyboard.press("Escape")
    await expect(chat.turn("within 30min wait 610")).to_have_attribute("data-status", "cancelled")
    await chat.has_ended()


async def test_what_is_said_is_typed_at_the_caret_and_nothing_is_sent(dictator):
    chat = await dictator.start_conversation()
    button, note = microphone(chat.page), chat.page.locator("#voice-note")
    sends = sends_when_pausing(chat.page)
    await expect(sends).to_be_hidden()
    await chat.composer.fill("say bread.")
    await chat.composer.evaluate("field => field.setSelectionRange(4, 4)")
    await button.click()
    await expect(chat.composer).to_be_focused()
    await expect(sends).not_to_be_checked()
    await expect(note).to_contain_text("What you say is typed into the message field")
    await check(chat.page)
    await hear(chat.page, "milk", is_final=False)
    await expect(note).to_have_text("milk…")
    await expect(chat.composer).to_have_value("say bread.")
    await hear(chat.page, "milk")
    await hear(chat.page, "and")
    await expect(chat.composer).to_have_value("say milk and bread.")
    await chat.composer.evaluate("field => field.setSelectionRange(4, 8)")
    await hear(chat.page, "water")
    await expect(chat.composer).to_have_value("say water and bread.")
    # The draft is kept like a typed one, and nothing was sent.
    await chat.page.reload()
    await expect(chat.composer).to_have_value("say water and bread.")
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await expect(chat.sent).to_have_count(0)
    await chat.composer.press("Enter")
    await expect(chat.answers).to_contain_text("water and bread.")
    await chat.has_ended()


async def test_dictated_cancel_word_ends_the_turn_and_is_not_typed(dictator):
    chat = await dictator.start_conversation()
    await microphone(chat.page).click()
    await hear(chat.page, "stop")  # there is nothing to stop
    await expect(chat.composer).to_have_value("stop")
    for word in ("Stop", "arrête"):  # whatever the language of the page
        await chat.say("within 30min wait 600")
        await has_started(chat.cards.last)
        await hear(chat.page, "stop using so many words")
        await expect(chat.composer).to_have_value("stop using so many words")
        await hear(chat.page, word)
        await expect(chat.ending("cancelled").last).to_be_visible()
        await chat.has_ended()
        await expect(chat.composer).to_have_value("stop using so many words")
        await expect(chat.queue).to_have_count(0)
    await chat.page.wait_for_function("() => spoken.length === 2")
    await expect(chat.page.locator(".command-outcome").last).to_have_text(
        await chat.page.evaluate("spoken[1]")
    )


async def test_whether_to_send_when_pausing_is_remembered(dictator):
    chat = await dictator.start_conversation()
    button, sends = microphone(chat.page), sends_when_pausing(chat.page)
    note = chat.page.locator("#voice-note")
    await button.click()
    await sends.check()
    await expect(note).to_contain_text("What you say is sent as soon as you pause")
    await hear(chat.page, "say Sent.")
    await expect(chat.answers).to_contain_text("Sent.")
    await chat.has_ended()
    await expect(chat.composer).to_be_empty()
    await chat.page.reload()
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await button.click()
    await expect(sends).to_be_checked()
    await sends.uncheck()
    await expect(note).to_contain_text("What you say is typed into the message field")
    await hear(chat.page, "say Typed.")
    await expect(chat.composer).to_have_value("say Typed.")
    await chat.page.reload()
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await button.click()
    await expect(sends).not_to_be_checked()
    await expect(chat.sent).to_have_count(1)


async def test_answer_that_gave_way_to_another_ends_later_and_the_other_one_is_no_message(speaker):
    chat = await speaker.start_conversation()
    await microphone(chat.page).click()
    for count in (1, 2):
        await hear(chat.page, "within 30min wait 600")
        await has_started(chat.cards.last)
        await hear(chat.page, "stop")
        await chat.page.wait_for_function("count => spoken.length === count", arg=count)
        await chat.has_ended()
    await chat.page.evaluate(
        "utterances[0].dispatchEvent(Object.assign(new Event('error'), {error: 'interrupted'}))"
    )
    await chat.page.evaluate("""() => {
      const now = performance.now.bind(performance);
      performance.now = () => now() + 1_000; // the echo is over a little after the end
    }""")
    await hear(chat.page, await chat.page.evaluate("spoken[1]"))
    await hear(chat.page, "say Heard.")
    await expect(chat.answers.last).to_contain_text("Heard.")
    await chat.has_ended()
    await expect(chat.sent).to_have_count(5)  # with both cancel words


async def is_asked_about(chat: Chat, text: str) -> None:
    """Say what is no cancel word, close the question, say it again and send it; then take it back."""
    question = chat.page.get_by_role("region", name="Stop the task?")
    for answer in ("Escape", "Send"):
        await hear(chat.page, text)
        await expect(question.get_by_role("button", name="Stop")).to_be_focused()
        await expect(chat.queue).to_have_count(0)
        if answer == "Escape":
            await chat.page.keyboard.press("Escape")
            await expect(chat.composer).to_have_value(text)
            await chat.composer.fill("")
        else:
            await chat.answer_stop_question(question.get_by_role("button", name="Send").click)
    await expect(chat.queue).to_have_text(text)
    await expect(chat.composer).to_be_empty()
    await chat.queue.get_by_role("button", name="Remove").click()
    await expect(chat.queue).to_have_count(0)


# Which errors end listening; where they do not, it begins again.
ERRORS = {
    "network": False,
    "not-allowed": True,
    "no-speech": False,
    "service-not-allowed": True,
    "phrases-not-supported": False,
    "audio-capture": True,
    "new-in-this-browser": False,
    "language-not-supported": True,
}


async def test_each_error_has_its_sentence(speaker):
    chat = await speaker.start_conversation()
    button, note = microphone(chat.page), chat.page.locator("#voice-note")
    sentences = set()
    for error, is_over in ERRORS.items():
        if await button.get_attribute("aria-pressed") == "false":
            await button.click()
        before, starts = await note.text_content(), await chat.page.evaluate("window.starts")
        await chat.page.evaluate("error => window.ear.fail(error)", error)
        await expect(note).not_to_have_text(before)
        sentences.add(await note.text_content())
        await expect(button).to_have_attribute("aria-pressed", str(not is_over).lower())
        if error == "not-allowed":
            await check(chat.page)
        if not is_over:
            await chat.page.wait_for_function("known => window.starts > known", arg=starts)
    assert len(sentences) == len(ERRORS)
    await button.click()
    await chat.page.evaluate("window.ear.fail('network')")
    await eventually(lambda: chat.page.evaluate("window.starts === 10"))
    await hear(chat.page, "say I hear you.")
    await expect(chat.answers.last).to_contain_text("I hear you.")


async def test_a_microphone_that_fails_at_once_every_time_rests(speaker):
    chat = await speaker.start_conversation()
    await chat.page.evaluate("window.failsAtOnce = true")
    await microphone(chat.page).click()
    await expect(chat.page.locator("#voice-note")).to_contain_text("Press its button to try again")
    assert await chat.page.evaluate("window.starts") == 3
    await expect(microphone(chat.page)).to_have_attribute("aria-pressed", "false")


async def test_a_browser_without_speech_has_no_microphone_and_one_that_was_on_comes_back_on(
    browser_user, speaker
):
    plain = await browser_user.open("/")
    await plain.add_init_script(
        "delete window.SpeechRecognition; delete window.webkitSpeechRecognition"
    )
    chat = await browser_user.begin(plain)
    await expect(microphone(chat.page)).to_be_hidden()
    await speaker.context.grant_permissions(["microphone"], origin=speaker.site.url)
    chat = await speaker.start_conversation()
    await expect(microphone(chat.page)).to_have_attribute("aria-pressed", "false")
    await microphone(chat.page).click()
    await chat.page.reload()
    await expect(microphone(chat.page)).to_have_attribute("aria-pressed", "true")
    await expect(chat.page.locator("#voice-note")).not_to_be_empty()
    await microphone(chat.page).click()
    await chat.page.reload()
    await expect(chat.connection).to_have_attribute("data-status", "online")
    await expect(microphone(chat.page)).to_have_attribute("aria-pressed", "false")


async def test_it_listens_only_while_its_tab_is_in_sight(speaker):
    await speaker.add_script(AWAY)
    await speaker.context.grant_permissions(["microphone"], origin=speaker.site.url)
    chat = await speaker.start_conversation()
    button = microphone(chat.page)
    await button.click()
    for _time in range(2):
        await chat.page.evaluate("go(true)")
        await expect(button).to_have_attribute("aria-pressed", "false")
        await hear(chat.page, "say Elsewhere.")
        await chat.page.evaluate("go(false)")
        await expect(button).to_have_attribute("aria-pressed", "true")
        await chat.page.evaluate("go(true)")
        await chat.page.reload()
        await expect(chat.connection).to_have_attribute("data-status", "online")
        await chat.page.evaluate(ASKED)
        assert await chat.page.evaluate("window.starts ?? 0") == 0
        await chat.page.evaluate("go(false)")
        await expect(button).to_have_attribute("aria-pressed", "true")
    await hear(chat.page, "say Here.")
    await expect(chat.answers).to_contain_text("Here.")
    await chat.has_ended()
    await expect(chat.sent).to_have_count(1)


async def test_only_the_chat_whose_button_was_pressed_last_listens(speaker):
    first, second = [await speaker.start_conversation() for _each in range(2)]
    for chat, other in ((first, second), (second, first), (first, second)):
        await microphone(chat.page).click()
        await expect(microphone(chat.page)).to_have_attribute("aria-pressed", "true")
        await expect(microphone(other.page)).to_have_attribute("aria-pressed", "false")
    await hear(second.page, "say Twice.")
    await hear(first.page, "say Once.")
    await expect(first.answers).to_contain_text("Once.")
    await first.has_ended()
    await expect(second.sent).to_have_count(0)


async def test_one_that_comes_back_waits_for_the_one_that_listens_and_not_for_its_button(speaker):
    await speaker.context.grant_permissions(["microphone"], origin=speaker.site.url)
    first = await speaker.start_conversation()
    await microphone(first.page).click()
    second = await speaker.start_conversation()
    await eventually(lambda: second.page.evaluate(WAITS))
    await expect(microphone(second.page)).to_have_attribute("aria-pressed", "false")
    await microphone(first.page).click()
    assert await second.page.evaluate(WAITS)
    await microphone(first.page).click()
    await expect(microphone(first.page)).to_have_attribute("aria-pressed", "true")
    await first.page.close()
    await expect(microphone(second.page)).to_have_attribute("aria-pressed", "true")


async def test_page_in_a_frame_listens_only_once_its_button_is_pressed(speaker):
    await speaker.context.grant_permissions(["microphone"], origin=speaker.site.url)
    chat = await speaker.start_conversation()
    button = microphone(chat.page)
    for _time in range(2):
        await button.click()
        await expect(button).to_have_attribute("aria-pressed", "true")
        frame = await frame_in(chat.page)
        assert await frame.evaluate("window.starts ?? 0") == 0
        assert not await frame.evaluate(WAITS)
        await microphone(frame).click()
        await expect(microphone(frame)).to_have_attribute("aria-pressed", "true")
        await expect(button).to_have_attribute("aria-pressed", "false")


async def frame_in(page: Page) -> Frame:
    """Put the page into a frame of its own. It knows its permission once this returns."""
    await page.evaluate(INSERT_FRAME)
    [frame] = page.main_frame.child_frames
    await expect(frame.locator("#connection")).to_have_attribute("data-status", "online")
    await frame.evaluate(ASKED)
    return frame


async def test_page_of_a_sub_agent_listens_to_nobody_and_takes_no_files(speaker):
    await speaker.context.grant_permissions(["microphone"], origin=speaker.site.url)
    chat = await speaker.start_conversation()
    await microphone(chat.page).click()
    await chat.say("ask assistant within 30min wait 600")
    await chat.cards.first.get_by_role("link", name="Open assistant").click()
    below = Chat(chat.page)
    await expect(below.card("seconds: 600")).to_be_visible()
    await expect(below.composer).to_be_hidden()
    await below.page.evaluate(ASKED)
    assert await below.page.evaluate("window.starts ?? 0") == 0
    assert await below.page.evaluate(IS_DROP_LEFT_TO_THE_BROWSER)
    await below.cancel_turn.click()
    await expect(below.ending("cancelled")).to_be_visible()


async def test_the_key_that_cancels_does_so_while_the_microphone_is_on(speaker):
    chat = await speaker.start_conversation()
    await microphone(chat.page).click()
    await chat.say("within 30min wait 600")
    await has_started(chat.cards.last)
    await chat.page.keyboard.press("Control+.")
    await expect(chat.ending("cancelled")).to_be_visible()
    await expect(microphone(chat.page)).to_have_attribute("aria-pressed", "true")
    await chat.has_ended()
