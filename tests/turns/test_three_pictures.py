"""Three pictures of one state (V3): a page that has watched, one that resumes, one that is loaded again.

Real turns make every event of the wire; the page's own reducer, in Node.js, makes the pictures.
"""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from governance import ToolContext, make_tool, registry
from governance.core.forms import read_form
from tests.support import eventually
from tests.turns.row_factory import RowFactory, result, said
from tests.turns.support import ChatDriver, FakeTools, in_database
from tests.turns.tools.scripted_agents import ask, use_scripts
from turns import EVENTS, selectors, services
from turns.core.chat_model import Notice
from turns.core.events import TurnStart
from turns.core.wire import arguments_of
from turns.endings import recovery
from turns.events import log
from turns.models import Conversation
from turns.storage import history_version
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)

PROGRAM = Path(__file__).parents[1] / "js" / "three_pictures.js"


class Album:
    """Moments of conversations, and the types of the events that led to them."""

    def __init__(self) -> None:
        self.types: set[str] = set()
        self._moments: list[dict[str, Any]] = []
        self._names: list[str] = []

    async def add(self, name: str, chat: ChatDriver, *, is_watched: bool = True) -> None:
        """Keep a moment, as soon as all that is stored has been published. Where nobody watched, the log has to do."""

        async def moment() -> dict[str, Any] | None:
            log = await selectors.conversation_events(conversation_id=chat.id, after=0)
            snapshot = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
            live = [each for each in chat.sink.events if each["conversation_id"] == str(chat.id)]
            if not is_watched:
                live = log
            numbered = {each["seq"] for each in live if "seq" in each}
            if numbered != {each["seq"] for each in log} or snapshot["seq"] != len(log):
                return None
            return {
                "live": list(map(_as_read, live)),
                "log": [*map(_as_read, log), *_so_far(snapshot)],
                "snapshot": {**snapshot, "messages": list(map(_as_read, snapshot["messages"]))},
            }

        kept = await eventually(moment)
        self.types |= {each["type"] for each in kept["log"]}
        self._moments.append(kept)
        self._names.append(name)

    def check(self) -> None:
        """Compare the pictures of every moment."""
        answer = subprocess.run(
            ["node", str(PROGRAM)],
            input=json.dumps(self._moments, default=str),
            capture_output=True,
            text=True,
            check=True,
        )
        found = [
            (name, other, difference)
            for name, pictures in zip(self._names, json.loads(answer.stdout), strict=True)
            for other in ("replayed", "reloaded")
            for difference in _differences(pictures["live"], pictures[other])
        ]
        assert found == [], "\n".join(" | ".join(each) for each in found)


def _as_read(one: dict[str, Any]) -> dict[str, Any]:
    """An event or a message with the arguments of calls as text, as webchat sends it."""
    if "content" in one:
        return {**one, "content": list(map(_as_read, one["content"]))}
    return {**one, "arguments": arguments_of(one["input"])} if "input" in one else one


def _so_far(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    """Text that streams is not in the log. A page that asks for what it missed gets it as one piece."""
    return [
        {
            "type": "text_delta",
            "turn_id": turn["turn_id"],
            "text": turn["partial_text"],
            "offset": 0,
        }
        for turn in snapshot["active_turns"]
        if turn["partial_text"]
    ]


def _differences(one: Any, other: Any, where: str = "") -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            found
            for name in sorted(one.keys() | other.keys())
            for found in _differences(one.get(name), other.get(name), f"{where}.{name}")
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [
            found for place, (a, b) in pairs for found in _differences(a, b, f"{where}[{place}]")
        ]
    return [] if one == other else [f"{where}: {one!r} != {other!r}"]


@pytest.fixture
def album() -> Album:
    if shutil.which("node") is None and os.environ.get("CI") != "true":
        pytest.skip("needs Node.js")
    return Album()


@pytest.fixture
def talkative():
    """A tool that says how far it is, and then waits."""
    opening = asyncio.Event()

    async def talk(context: ToolContext) -> str:
        """Talk."""
        context.progress("half of it", progress=1, total=2, output="one\ntwo\n")
        await opening.wait()
        return "talked"

    registry.register(make_tool(talk))
    yield opening
    registry.unregister("talk")


async def ordinary_turns(album: Album, chat: ChatDriver, fake_tools: FakeTools) -> None:
    """Queued, begun, streaming, waiting for each other, with another limit, out of time, ended."""
    hold = gate()
    chat.use_script(
        [text("On it."), call("a", "held"), call("b", "alone")],
        [text("So far, "), hold],
        [text("And the second.")],
    )
    turn_id = await chat.say("first")
    await chat.sink.until("tool_queued", tool_id="b")
    second = await chat.say("second")
    await services.set_deadline(turn_id=turn_id, tool_id="a", user=chat.user, timeout_ms=90_000)
    await chat.sink.until("tool_deadline", tool_id="a")
    await album.add("calls wait, a turn is queued", chat)
    fake_tools.open("a")
    await chat.running(turn_id, "b")
    await services.set_deadline(turn_id=turn_id, tool_id="b", user=chat.user, timeout_ms=1)
    await chat.sink.until("tool_timeout", tool_id="b")
    await chat.sink.until("text_delta", text="So far, ")
    await eventually(lambda: _has_partial_text(chat))
    await album.add("a call has timed out, an answer streams", chat)
    hold.opening.set()
    await chat.ended(second)


async def _has_partial_text(chat: ChatDriver) -> bool:
    snapshot = await selectors.snapshot(conversation_id=chat.id, user=chat.user)
    return any(turn["partial_text"] for turn in snapshot["active_turns"])


async def asked_and_told(album: Album, chat: ChatDriver, talkative: asyncio.Event) -> None:
    """A question, its answer, progress, and a model that asks for patience."""
    hold = gate()
    again = Notice(code="retrying", message="Busy; again in 4 s.", reason="Busy")
    chat.use_script([call("q", "asked"), call("p", "talk")], [again, hold, text("Fine.")])
    turn_id = await chat.say("ask me")
    await chat.asked(turn_id, "q")
    await chat.sink.until("tool_progress", tool_id="p", message="half of it")
    await album.add("a question is open, a call has progress", chat)
    await chat.decide(turn_id, "q")
    await chat.sink.until("tool_result", tool_id="q")
    await album.add("the question is decided", chat)
    talkative.set()
    await chat.sink.until("error", code="retrying")
    await album.add("the model is asked again", chat)
    await chat.cancel(turn_id, mode="after_step")
    await album.add("the turn ends after this step", chat)
    hold.opening.set()
    await chat.ended(turn_id)


async def filled_in(album: Album, chat: ChatDriver) -> None:
    """A form of a running call, and its answer."""

    async def inquire(context: ToolContext) -> str:
        """Ask the person."""
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await context.ask_form(read_form("Who <b>are</b> you?", schema))
        await going_on.wait()
        return str(answer.answers)

    going_on = asyncio.Event()
    registry.register(make_tool(inquire))
    try:
        chat.use_script([call("f", "inquire")], [text("Fine.")])
        turn_id = await chat.say("ask me for my name")
        await chat.sink.until("tool_question", tool_id="f")
        await album.add("a form is open", chat)
        await services.answer_tool(
            turn_id=turn_id, tool_id="f", user=chat.user, action="accept", answers={"name": "Ada"}
        )
        await album.add("the form is answered", chat)
        going_on.set()
        await chat.ended(turn_id)
    finally:
        registry.unregister("inquire")


async def cancelled(album: Album, chat: ChatDriver, fake_tools: FakeTools) -> None:
    """A typed stop, its answer, and a body that ends after all."""
    chat.use_script([call("late", "blocked")])
    turn_id = await chat.say("dig")
    await chat.running(turn_id, "late")
    await chat.say("Stop it, please!")
    await chat.sink.until("cancel_acknowledged", turn_id=str(turn_id))
    await album.add("a call was given up", chat)
    fake_tools.open("late")
    await chat.sink.until("tool_settled", tool_id="late")


async def repaired(chat: ChatDriver) -> None:
    """A result of no call gets into the history, and the next turn finds that out."""
    chat.use_script([text("Fine.")], [text("Still fine.")])
    turn = await chat.run("work")

    def plant() -> None:
        factory = RowFactory(conversation=Conversation.objects.get(pk=chat.id))
        factory.message(turn, "user", result("ghost"))
        history_version.renew([chat.id])

    await in_database(plant)
    await chat.run("go on")
    assert chat.sink.find("history_repaired")


async def delegated(chat: ChatDriver) -> None:
    """A sub-agent is asked."""
    use_scripts(chat, delegate=[[ask("s", "dig")], [text("Done.")]], dig=[[text("Dug.")]])
    await chat.run("delegate")


async def lose_owners(chat: ChatDriver) -> None:
    """Let turns end with their processes, until no other begins."""

    def lose() -> None:
        factory = RowFactory(conversation=Conversation.objects.get(pk=chat.id))
        for _ in range(3):
            factory.conversation.refresh_from_db()
            turn = factory.turn("running", owner=None, source="typed")
            factory.message(turn, "user", said("planted"))
            start = TurnStart(
                user_message="planted",
                client_id=None,
                agent="",
                parent_turn_id=None,
                turn_timeout_ms=None,
                source="typed",
                reports=[],
            )
            log.append(factory.conversation, turn.pk, start)
            recovery.recover()

    await in_database(lose)


async def test_live_replayed_and_reloaded_show_the_same_after_every_event(
    album: Album, chat: ChatDriver, fake_tools: FakeTools, talkative: asyncio.Event, settings: Any
):
    settings.GOVERNANCE_APPROVAL = {}
    await ordinary_turns(album, chat, fake_tools)
    await asked_and_told(album, chat, talkative)
    await filled_in(album, chat)
    await cancelled(album, chat, fake_tools)
    await album.add("a call that was given up has ended", chat)
    await repaired(chat)
    await album.add("a history was repaired", chat)
    await delegated(chat)
    await album.add("a sub-agent has worked", chat)
    await lose_owners(chat)
    await album.add("the conversation is parked", chat, is_watched=False)
    await services.resume_conversation(conversation_id=chat.id, user=chat.user)
    await album.add("it may go on", chat, is_watched=False)
    album.check()
    assert album.types >= set(EVENTS), "every type of event needs its moment here"
