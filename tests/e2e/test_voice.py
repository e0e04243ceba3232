"""The microphone of the chat page (C8). Headless browsers have no speech, so a script stands for the browser's part."""

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
async def speaker(open_browser, site):
    """Return a person whose browser recognises speech."""
    person = await open_browser(site)
    await person.add_script(SPEECH)
    return person


def microphone(page: Page | Frame):
    return page.locator("#voice")


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
    await hear(chat.page, "within 30min wait 600")
    await expect(note).to_have_text("Heard: within 30min wait 600")
    await has_started(chat.card("seconds: 600"))
    await expect(chat.sent).to_have_count(1)
    await is_asked_about(chat, "stop using so many words")
    await hear(chat.page, "Stop")
    await expect(chat.ending("Turn cancelled")).to_be_visible()
    await eventually(lambda: chat.page.evaluate("window.spoken.length > 0"))
    [answer] = await chat.page.evaluate("window.spoken")
    await expect(chat.page.locator(".command-outcome")).to_have_text(answer)
    # What the page says itself is heard, too, and is no message.
    await hear(chat.page, answer)
    await chat.page.evaluate("window.utterance.dispatchEvent(new Event('error'))")
    await expect(note).to_contain_text("cannot speak answers")
    await chat.has_ended()
    await expect(chat.sent).to_have_count(3)  # one of them was taken back
    # Esc ends listening first, and the turn then.
    await chat.say("within 30min wait 610")
    await has_started(chat.card("seconds: 610"))
    await chat.page.keyboard.press("Escape")
    await expect(button).to_have_attribute("aria-pressed", "false")
    await expect(chat.cancel_turn).to_be_enabled()
    await chat.page.keyboard.press("Escape")
    await expect(chat.turn("within 30min wait 610")).to_contain_text("Turn cancelled")
    await chat.has_ended()


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
    question = chat.page.get_by_role("region", name="Stop the turn?")
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


@pytest.mark.parametrize(
    ("error", "sentence", "is_over"),
    [
        ("not-allowed", "The microphone is blocked.", True),
        ("service-not-allowed", "does not allow speech recognition", True),
        ("audio-capture", "No microphone was found.", True),
        ("language-not-supported", "does not know your browser's language", True),
        ("network", "cannot reach its service", False),
        ("no-speech", "Nothing was heard.", False),
        ("phrases-not-supported", "goes on without hints", False),
        ("new-in-this-browser", "Speech recognition has failed.", False),
    ],
)
async def test_each_error_has_its_sentence(speaker, error, sentence, is_over):
    page = await speaker.open("/")
    chat = await speaker.begin(page)
    await microphone(page).click()
    await page.evaluate("error => window.ear.fail(error)", error)
    await expect(page.locator("#voice-note")).to_contain_text(sentence)
    await expect(microphone(page)).to_have_attribute("aria-pressed", str(not is_over).lower())
    if error == "not-allowed":
        await check(page)
    if not is_over:
        await eventually(lambda: page.evaluate("window.starts === 2"))
        await hear(page, "say I hear you.")
        await expect(chat.answers.last).to_contain_text("I hear you.")


async def test_a_microphone_that_fails_at_once_every_time_rests(speaker):
    chat = await speaker.start_conversation()
    await chat.page.evaluate("window.failsAtOnce = true")
    await microphone(chat.page).click()
    await expect(chat.page.locator("#voice-note")).to_contain_text("Press its button to go on")
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
    await microphone(chat.page).click()
    await chat.page.reload()
    await expect(chat.connection).to_have_text("Connected")
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
        await expect(chat.connection).to_have_text("Connected")
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
    await expect(frame.locator("#connection")).to_have_text("Connected")
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
    await expect(below.ending("Turn cancelled")).to_be_visible()


async def test_the_key_that_cancels_does_so_while_the_microphone_is_on(speaker):
    chat = await speaker.start_conversation()
    await microphone(chat.page).click()
    await chat.say("within 30min wait 600")
    await has_started(chat.cards.last)
    await chat.page.keyboard.press("Control+.")
    await expect(chat.ending("Turn cancelled")).to_be_visible()
    await expect(microphone(chat.page)).to_have_attribute("aria-pressed", "true")
    await chat.has_ended()
