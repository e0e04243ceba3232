"""Images and files that a person attaches: chosen, dropped, pasted; sent, shown, and still there after a reload."""

import asyncio
import base64

import pytest
from playwright.async_api import FilePayload, Locator, Route, expect

from tests.e2e.browser_user import BrowserUser
from tests.e2e.chat import Chat
from tests.e2e.test_accessibility import check
from tests.files_to_attach import image, pdf

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHOTO = FilePayload(name="photo.png", mimeType="image/png", buffer=image())
REPORT = FilePayload(name="report.pdf", mimeType="application/pdf", buffer=pdf("Tulips sell well"))
GIVE = """([content, kind, selector]) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const files = new DataTransfer();
  files.items.add(new File([bytes], "photo.png", { type: "image/png" }));
  const how = { bubbles: true, cancelable: true };
  const event = kind === "paste"
    ? new ClipboardEvent("paste", { ...how, clipboardData: files })
    : new DragEvent(kind, { ...how, dataTransfer: files });
  document.querySelector(selector).dispatchEvent(event);
}"""


def waiting(chat: Chat) -> Locator:
    return chat.page.locator("#attach-list > li")


async def attach(chat: Chat, *files: FilePayload) -> None:
    await chat.page.locator("#attach-input").set_input_files(list(files))
    for file in files:
        chip = waiting(chat).filter(has_text=file["name"])
        await expect(chip).to_be_visible()
        await expect(chip.locator("progress")).to_have_count(0)


async def is_painted(picture: Locator) -> None:
    """Wait until the browser has the picture itself."""
    await expect(picture).to_have_js_property("complete", value=True)
    assert await picture.evaluate("node => node.decode().then(() => node.naturalWidth)") == 40


async def test_files_are_sent_and_shown_live_and_after_a_reload(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    await expect(chat.page.get_by_role("button", name="Attach files")).to_be_visible()
    await attach(chat, PHOTO, REPORT)
    await check(chat.page)
    await chat.say("say Nice")
    await expect(waiting(chat)).to_have_count(0)
    for _look in range(2):
        message = chat.sent.filter(has_text="say Nice")
        await is_painted(message.get_by_role("img", name="photo.png"))
        chip = message.get_by_role("link", name="report.pdf")
        await expect(chip).to_contain_text("PDF · 1 kB")
        await expect(message).to_have_count(1)
        await chat.has_ended()
        await check(chat.page)
        await chat.page.reload()
    async with chat.page.expect_download() as download:
        await chip.click()
    assert (await download.value).suggested_filename == "report.pdf"


async def test_files_alone_are_a_message(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    await attach(chat, REPORT)
    await chat.page.get_by_role("button", name="Send", exact=True).click()
    await expect(chat.answers.last).to_contain_text("Tulips sell well")
    await expect(chat.page.locator("#title")).to_have_text("report.pdf")


async def test_files_are_dropped_and_pasted(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    content = base64.b64encode(image()).decode()
    await chat.page.evaluate(GIVE, [content, "dragover", "#transcript"])
    await expect(chat.page.locator("#chat[data-drop]")).to_be_visible()
    await check(chat.page)
    await chat.page.evaluate(GIVE, [content, "drop", "#transcript"])
    await chat.page.evaluate(GIVE, [content, "paste", "#composer-input"])
    await expect(waiting(chat)).to_have_count(2)
    await expect(chat.page.locator("#chat[data-drop]")).to_have_count(0)
    await chat.page.get_by_role("button", name="Remove photo.png").first.click()
    await expect(waiting(chat)).to_have_count(1)


async def test_the_button_to_remove_a_file_stays_in_place_when_the_upload_ends(
    browser_user: BrowserUser,
):
    chat = await browser_user.start_conversation()
    may_go_on = asyncio.Event()

    async def hold(route: Route) -> None:
        await may_go_on.wait()
        await route.continue_()

    await chat.page.route("**/api/attachments?*", hold)
    await chat.page.locator("#attach-input").set_input_files([PHOTO])
    bar, remove = waiting(chat).locator("progress"), waiting(chat).get_by_role("button")
    await expect(bar).to_be_visible()
    while_it_runs = await remove.bounding_box()
    may_go_on.set()
    await expect(bar).to_have_count(0)
    assert await remove.bounding_box() == while_it_runs


async def test_refused_file_says_why_and_holds_nothing_up(browser_user: BrowserUser):
    browser_user.expect_problem("status of 422")
    chat = await browser_user.start_conversation()
    program = FilePayload(name="photo.png", mimeType="image/png", buffer=b"MZ\x90\0\3")
    await attach(chat, program)
    await expect(waiting(chat)).to_contain_text("This file type is not supported.")
    name = waiting(chat).locator(".attachment-name")
    assert await name.evaluate("name => name.scrollWidth <= name.clientWidth")  # not cut for it
    await check(chat.page)
    await expect(chat.page.locator("#send")).to_be_disabled()
    await chat.say("say Hello")
    await expect(chat.answers.last).to_contain_text("Hello")
    await expect(waiting(chat)).to_have_count(0)


async def test_files_that_wait_outlive_a_reload(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    await attach(chat, PHOTO)
    await chat.page.reload()
    await expect(waiting(chat)).to_contain_text("photo.png")
    await chat.say("say Again")
    await is_painted(chat.sent.get_by_role("img", name="photo.png"))


async def test_edited_message_keeps_its_files(browser_user: BrowserUser):
    chat = await browser_user.start_conversation()
    await attach(chat, PHOTO)
    await chat.say("say One")
    await chat.has_ended()
    message = chat.sent.filter(has_text="say One")
    await message.get_by_role("button", name="Edit").click()
    editor = message.get_by_role("textbox")
    await editor.fill("say Two")
    await editor.press("Enter")
    await expect(chat.answers.last).to_contain_text("Two")
    await is_painted(chat.sent.filter(has_text="say Two").get_by_role("img", name="photo.png"))
