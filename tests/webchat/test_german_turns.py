"""A whole turn for somebody who reads German. People get German; the chat model, the codes and the log stay English."""

import asyncio
import gettext
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient

from tests.turns.support import (
    CHAT_MODEL,
    ChatDriver,
    FakeTools,
    RecordingSink,
    recording_sink,
    registered_fake_tools,
    row,
)
from tests.turns.tools.scripted_agents import spawn, use_scripts
from tests.webchat.sockets import Frame, Socket
from turns import services
from turns.core.chat_model import ChatRequest
from turns.models import Turn
from turns.testing import call, gate, text

ROOT = Path(__file__).parents[2]
APPS = ("governance", "turns", "webchat")
PLACE = re.compile(r"\{\w+\}|%\(\w+\)[sd]")
ID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")
ENGLISH, GERMAN = 0, 1
# What a frame says to programs: the same for every reader.
CODES = (
    *("type", "status", "code", "error_type", "disposition", "outcome", "decision", "result"),
    *("ended_by_reason", "ended_by_source", "mode", "limit", "source", "remember"),
)
NOT_OURS = ("input", "result", "content", "html", "tail", "partial_text", "user_message")
SCRIPT = (
    [call("late", "held", _meta={"timeout_ms": 60})],
    [call("capped", "quick", _meta={"timeout_ms": 7_200_000})],
    [call("refused", "asked_held")],
    [call("ended", "held"), call("listed", "list_files")],
    [call("nobody", "sessions_ask", agent="nobody", message="Work!")],
    [call("last", "held")],
    [text("Well.")],
)
TO_THE_MODEL = {
    "late": '[TIMEOUT] Tool "held" did not respond within 0.06s.',
    "capped": "[NOTE] It requested 7200s; the maximum is 40s.",
    "refused": '[DENIED] Tool "asked_held" was not run: a person denied this call. No reason was given.',
    "ended": '[CANCELLED] Tool "held" was cancelled by the user.',
    "nobody": '[ERROR] There is no agent named "nobody", it is switched off, or the person',
    "last": '[CANCELLED] Tool "held" was cancelled by the user.',
}
TO_PEOPLE = {
    "title": {"en": "List files", "de": "Dateien auflisten"},
    "stopped": {"en": "Cancelled.", "de": "Abgebrochen."},
    "decided": {
        "en": "This call is no longer waiting for a decision: denied.",
        "de": "Dieser Aufruf wartet nicht mehr auf eine Entscheidung: abgelehnt.",
    },
    "step_limit": {
        "en": "The task stopped at its limit of 1 step.",
        "de": "Die Aufgabe endete an ihrem Limit von 1 Schritt.",
    },
}


@cache
def sentences(language: int) -> frozenset[str]:
    """What the catalogues say otherwise in German, cut at the places for values."""
    found: set[str] = set()
    for app in APPS:
        with (ROOT / app / "locale/de/LC_MESSAGES/django.mo").open("rb") as compiled:
            catalogue = gettext.GNUTranslations(compiled)._catalog  # type: ignore[attr-defined]
        for english, german in catalogue.items():
            pair = (english[0] if isinstance(english, tuple) else english, german)
            if pair[0] and pair[0] != german:
                found.update(p.strip() for p in PLACE.split(pair[language]) if len(p.split()) > 2)
    return frozenset(found)


def said_in(language: int, said: str) -> list[str]:
    return [sentence for sentence in sentences(language) if sentence in said]


@pytest.fixture
def tools(settings: Any) -> Iterator[FakeTools]:
    settings.TURNS_CHAT_MODEL = CHAT_MODEL
    settings.GOVERNANCE_TIMEOUT_CEILING = 40.0
    settings.GOVERNANCE_APPROVAL = {"asked_held": "always", "*": "never"}
    with registered_fake_tools() as tools:
        yield tools


@pytest.fixture
def sink() -> Iterator[RecordingSink]:
    with recording_sink() as sink:
        yield sink


class Reader:
    """Somebody with a page in a language: a socket and a browser."""

    def __init__(self, language: str, *, chat: ChatDriver, client: AsyncClient) -> None:
        self.language = language
        self.chat = chat
        self.client = client
        self.socket = Socket(
            conversation_id=chat.id, session=client.cookies["sessionid"].value, language=language
        )
        self.answers: list[Any] = []

    async def get(self, path: str) -> str:
        answer = await self.client.get(path, headers={"accept-language": self.language})
        return answer.content.decode()

    async def post(self, path: str, **body: Any) -> Any:
        answer = await self.client.post(
            path,
            json.dumps(body),
            content_type="application/json",
            headers={"accept-language": self.language},
        )
        self.answers.append(answer.json())
        return self.answers[-1]

    async def do(self, kind: str, question: Frame, **how: Any) -> None:
        ids = {name: question[name] for name in ("turn_id", "tool_id")}
        await self.socket.send(type=kind, op_id=f"{kind} {ids['tool_id']}", **ids, **how)
        assert (await self.socket.read("op_result"))["outcome"] == "accepted"

    async def say(self, said: str) -> None:
        await self.socket.send(type="message", client_id=f"client {said}", text=said)


def expected(name: str, reader: Reader) -> str:
    return TO_PEOPLE[name][reader.language]


async def live_through(reader: Reader, settings: Any) -> list[ChatRequest]:
    """A turn with calls that time out, are denied, cancelled and refused. Then it is stopped, and the next one fails."""
    chat, socket = reader.chat, reader.socket
    model = chat.use_script(*SCRIPT)
    await reader.say("go")
    question = await socket.read("tool_approval")
    await reader.do("decide_tool", question, decision="deny")
    path = f"/api/turns/{question['turn_id']}/tools/{question['tool_id']}/decision"
    assert (await reader.post(path, decision="approve"))["error"] == expected("decided", reader)
    running = await socket.read("tool_start", lambda frame: frame["tool_id"] == "ended")
    await socket.read("tool_result", lambda frame: frame["tool_id"] == "listed")
    await reader.do("cancel_tool", running)
    await socket.read("tool_start", lambda frame: frame["tool_id"] == "last")
    await reader.say("stop")
    assert (await socket.read("cancel_acknowledged"))["text"] == expected("stopped", reader)
    settings.TURNS_STEP_LIMIT = 1
    again = chat.use_script([call("more", "quick")])
    await reader.say("again")
    await socket.read("turn_end", lambda frame: frame["status"] == "failed")
    settings.TURNS_STEP_LIMIT = 20
    return [*model.requests, *again.requests]


def facts(frame: Any) -> Any:
    """What is the same for every reader."""
    if isinstance(frame, list):
        return [facts(each) for each in frame]
    if isinstance(frame, dict):
        return {
            name: facts(held)
            for name, held in frame.items()
            if name in CODES or isinstance(held, dict | list)
        }
    return ID.sub("#", frame) if isinstance(frame, str) else frame


def words(frame: Any) -> str:
    """What a person reads of a frame."""
    if isinstance(frame, dict):
        return "\n".join(words(held) for name, held in frame.items() if name not in NOT_OURS)
    return "\n".join(map(words, frame)) if isinstance(frame, list) else str(frame)


def addresses(reader: Reader) -> list[str]:
    turns = sorted({frame["turn_id"] for frame in reader.socket.events})
    return [
        *(f"/api/turns/{turn}{more}" for turn in turns for more in ("", "/events")),
        f"/api/conversations/{reader.chat.id}/messages",
    ]


@pytest.fixture
async def talk(
    person: User, user_client: AsyncClient, sink: RecordingSink, settings: Any
) -> AsyncIterator[Callable[[str], Awaitable[Reader]]]:
    """Return a function that begins a conversation in a language."""
    made: list[Reader] = []

    async def begin(language: str) -> Reader:
        place = await services.create_conversation(user=person)
        chat = ChatDriver(user=person, conversation_id=place.id, sink=sink)
        made.append(Reader(language, chat=chat, client=user_client))
        await made[-1].socket.open()
        return made[-1]

    yield begin
    for reader in made:
        await reader.socket.leave()


@pytest.mark.parametrize("site_language", ["en", "de"])
async def test_a_turn_is_german_for_people_and_english_for_the_model_the_codes_and_the_log(
    talk: Any, tools: FakeTools, settings: Any, caplog: pytest.LogCaptureFixture, site_language: str
) -> None:
    settings.LANGUAGE_CODE = site_language
    told: dict[str, dict[str, Any]] = {}
    caplog.set_level(logging.DEBUG)
    for language in ("en", "de"):
        caplog.clear()
        reader = await talk(language)
        requests = await live_through(reader, settings)
        frames = reader.socket.events
        lines = [each.getMessage() for each in caplog.records if each.name.startswith(APPS)]
        told[language] = {
            "model": ID.sub("#", "\n".join(map(str, requests))),
            "codes": facts(frames),
            "log": {ID.sub("#", line) for line in lines},
        }
        answers = [json.loads(await reader.get(path)) for path in addresses(reader)]
        for name in ("title", "step_limit"):
            assert expected(name, reader) in words(frames)
            assert expected(name, reader) in words(answers)
    assert said_in(ENGLISH, words([*frames, *reader.answers, *answers])) == []
    assert told["de"] == told["en"]
    assert said_in(GERMAN, str(told["de"])) == []
    for sentence in TO_THE_MODEL.values():
        assert sentence in told["de"]["model"]


async def test_a_report_is_announced_to_each_reader_in_their_language(
    talk: Any, tools: FakeTools, settings: Any
) -> None:
    settings.LANGUAGE_CODE = "de"
    for language, announced in (("en", "Report of assistant"), ("de", "Bericht von assistant")):
        reader = await talk(language)
        opening = asyncio.Event()
        agents = use_scripts(
            reader.chat,
            go=[[spawn("s", "dig")], [text("It digs.")]],
            dig=[[gate(opening), text("Gold.")]],
            **{"[SUB-AGENT]": [[text("So it is gold.")]]},
        )
        await reader.say("go")
        await reader.socket.read("turn_end")
        opening.set()
        queued = await reader.socket.read("turn_queued")
        assert (queued["source"], queued["user_message"]) == ("sub_agent", announced)
        ended = await reader.socket.read("turn_end")
        turn = json.loads(await reader.get(f"/api/turns/{ended['turn_id']}"))
        assert turn["user_message"] == announced
        assert (await row(Turn, pk=ended["turn_id"])).user_message == "Report of assistant"
        assert said_in(GERMAN, str(agents.requests)) == []
