"""Each reader's own language, over the socket and HTTP: of errors, and of sentences that rows keep in English."""

from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from django.test import AsyncClient

from governance.db import run_in_db_thread
from tests.webchat.sockets import Socket
from turns.models import Turn
from turns.services import ConversationSummary
from webchat.translation import language_of

pytestmark = pytest.mark.usefixtures("site")

STEP_LIMIT = {
    "en": "The task stopped at its limit of 1 step.",
    "de": "Die Aufgabe endete an ihrem Limit von 1 Schritt.",
}
ENDINGS = {
    "en": (f"*Task: failed: {STEP_LIMIT['en']}*", "*Task: cancelled: a person*", "` · cancelled\n"),
    "de": (f": fehlgeschlagen: {STEP_LIMIT['de']}*", ": abgebrochen: ", "` · abgebrochen\n"),
}
CANCELLED = {"en": "Cancelled.", "de": "Abgebrochen."}
TITLE = {"en": "List files", "de": "Dateien auflisten"}


async def say(socket: Socket, text: str) -> None:
    await socket.send(type="message", client_id=str(uuid4()), text=text)


@pytest.mark.parametrize(
    ("cookie", "asked", "language"),
    [
        ("", "", "en"),
        ("", "de-AT,de;q=0.9,en;q=0.8", "de"),
        ("", "fr,tlh;q=0.9", "en"),
        ("de", "en", "de"),
        ("xx-nothing", "de", "de"),
        ("", "x" * 9_000 + "\x00;q=z", "en"),
    ],
)
def test_a_socket_speaks_the_language_that_a_page_of_the_same_browser_has(
    cookie: str, asked: str, language: str
) -> None:
    cookies = {django_settings.LANGUAGE_COOKIE_NAME: cookie} if cookie else {}
    headers = [(b"accept-language", asked.encode("latin1"))] if asked else []
    assert language_of({"cookies": cookies, "headers": headers}) == language


async def test_errors_of_a_socket_and_of_http_are_in_the_readers_language(
    connect: Any, user_client: AsyncClient
) -> None:
    german, english = await connect(language="de").open(), await connect().open()
    for socket, sentence in (
        (german, "Die Nachricht ist leer."),
        (english, "The message is empty."),
    ):
        await say(socket, " ")
        assert (await socket.read("error"))["message"] == sentence
    answer = await user_client.get("/api/nothing", headers={"accept-language": "de"})
    assert answer.json()["error"].startswith("Unter dieser Adresse gibt es nichts")


async def test_two_readers_see_one_turn_each_in_their_language_live_and_afterwards(
    connect: Any, user_client: AsyncClient, conversation: ConversationSummary, settings: Any
) -> None:
    settings.TURNS_STEP_LIMIT = 1
    settings.GOVERNANCE_APPROVAL = {"*": "never"}
    readers = {"de": await connect(language="de").open(), "en": await connect().open()}
    await say(readers["de"], "list\nthen\nlist")
    for language, socket in readers.items():
        assert (await socket.read("tool_start"))["tool_title"] == TITLE[language]
        assert (await socket.read("error"))["message"] == STEP_LIMIT[language]
        await socket.read("turn_end")
    await say(readers["en"], "wait 60")
    for socket in readers.values():
        await socket.read("tool_start")
    await say(readers["en"], "stop")
    for language, socket in readers.items():
        assert (await socket.read("cancel_acknowledged"))["text"] == CANCELLED[language]
    for language in readers:
        later = await connect(language=language).open()
        first, second = (await later.read("snapshot"))["turns"][-2:]
        assert first["error_message"] == STEP_LIMIT[language]
        assert [said["text"] for said in second["acknowledgements"]] == [CANCELLED[language]]
        one = await user_client.get(
            f"/api/turns/{first['turn_id']}", headers={"accept-language": language}
        )
        assert one.json()["error_message"] == STEP_LIMIT[language]
        assert one.json()["calls"][0]["tool_title"] == TITLE[language]
        export = await user_client.get(
            f"/api/conversations/{conversation.id}/export?format=markdown",
            headers={"accept-language": language},
        )
        for words in ENDINGS[language]:
            assert words in export.content.decode()
    stored = await run_in_db_thread(
        lambda: list(Turn.objects.order_by("number").values_list("error_message", flat=True))
    )()
    assert stored[0] == STEP_LIMIT["en"]


async def test_what_people_and_models_wrote_is_left_alone(
    connect: Any, conversation: ConversationSummary
) -> None:
    socket = await connect(language="de").open()
    await say(socket, "say Cancelled.")
    message = await socket.read("message", lambda frame: frame["role"] == "assistant")
    assert message["content"][0]["text"] == "Cancelled."
    later = await connect(language="de").open()
    snapshot = await later.read("snapshot")
    assert "Cancelled." in str(snapshot["messages"])
    assert "Abgebrochen." not in str(snapshot)


async def test_a_page_and_an_export_are_in_the_readers_language(
    user_client: AsyncClient, conversation: ConversationSummary
) -> None:
    for path in ("/", f"/c/{conversation.id}/"):
        for language, words in (("de", "Neue Unterhaltung"), ("en", "New conversation")):
            answer = await user_client.get(path, headers={"accept-language": language})
            page = answer.content.decode()
            assert words in page
            assert f'<html lang="{language}"' in page
            assert ("Heute" in page) is (language == "de")
    address = f"/api/conversations/{conversation.id}/export?format=markdown"
    export = await user_client.get(address, headers={"accept-language": "de"})
    assert "Exportiert am" in export.content.decode()
