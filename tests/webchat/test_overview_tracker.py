"""What a socket tells beyond its own conversation: how others stand, what sub-agents ask, and who may decide that."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient
from pydantic import TypeAdapter

from tests.support import PATIENCE, eventually
from tests.webchat.sockets import Frame, Socket
from turns import services
from turns.models import Conversation
from turns.selectors.conversation_status import ConversationStatus, Overview, StatusMark
from turns.services import ConversationSummary
from webchat import api_schemas, log_poller
from webchat.log_poller import LogPoller, OverviewTracker
from webchat.protocol import server_frames

Connect = Callable[..., Socket]


@pytest.fixture(autouse=True)
def _waiting_is_asked_about(settings):
    settings.GOVERNANCE_APPROVAL = {"wait": "once_per_conversation"}


async def overview(socket: Socket, when: Callable[[Frame], bool]) -> Frame:
    frame = await socket.read("overview", when)
    TypeAdapter(server_frames.Overview).validate_python(frame)
    return frame


async def asked_below(connect: Connect) -> tuple[Socket, Frame]:
    """Return a socket, and what a sub-agent asks that works for its conversation."""
    socket = await connect().open()
    await socket.send(type="message", client_id="m", text="ask assistant wait 0")
    told = await overview(socket, lambda frame: bool(frame["questions"]))
    (question,) = told["questions"]
    return socket, question


def decision(question: Frame, op_id: str, **more: Any) -> dict[str, Any]:
    ids = {name: question[name] for name in ("turn_id", "tool_id")}
    return {"type": "decide_tool", "op_id": op_id, "decision": "approve", **ids, **more}


async def test_what_a_sub_agent_asks_is_decided_on_the_page_that_it_works_for(connect: Connect):
    socket, question = await asked_below(connect)
    assert (question["agent"], question["tool_name"]) == ("assistant", "wait")
    assert question["input"] == {"seconds": 0}
    start = next(frame for frame in socket.seen if frame["type"] == "sub_agent")
    assert question["parent_tool_id"] == start["tool_id"]
    assert question["conversation_id"] == start["child_conversation_id"]
    await socket.send(**decision(question, "op"))
    result = await socket.read("op_result")
    assert result["outcome"] == "accepted"
    end = await socket.read("turn_end")
    assert end["status"] == "completed"
    if not any(frame["type"] == "overview" and not frame["questions"] for frame in socket.seen):
        await overview(socket, lambda frame: not frame["questions"])
    asked_by = [frame for frame in socket.seen if frame["type"] == "tool_result"]
    assert [frame["status"] for frame in asked_by] == ["succeeded"]


async def test_a_stranger_who_knows_the_ids_decides_nothing(
    connect: Connect, stranger: User, site: None
):
    _, question = await asked_below(connect)
    client = AsyncClient()
    await client.aforce_login(stranger)
    place = await services.create_conversation(user=stranger)
    theirs = await connect(
        conversation_id=place.id, session=client.cookies["sessionid"].value
    ).open()
    await theirs.send(**decision(question, "op"))
    result = await theirs.read("op_result")
    assert result["outcome"] == "not_found"
    assert not [frame for frame in theirs.seen if frame.get("questions")]


async def test_a_tab_with_another_conversation_sees_how_this_one_stands(
    connect: Connect, conversation: ConversationSummary, person: User, user_client: AsyncClient
):
    other = await services.create_conversation(user=person)
    tab = await connect(conversation_id=other.id).open()
    socket = await connect().open()
    await socket.send(type="message", client_id="m", text="wait 0")
    question = await socket.read("tool_approval")
    here = str(conversation.id)
    told = await overview(tab, lambda frame: any(row["asked_in"] for row in frame["conversations"]))
    assert told["conversations"] == [
        {
            "conversation_id": here,
            "standing": "asking",
            "asked_in": [here],
            "tools_running": 0,
            "is_queued": False,
        }
    ]
    listed = (await user_client.get("/api/conversations")).json()
    TypeAdapter(api_schemas.ConversationsAnswer).validate_python(listed)
    standing = {row["conversation_id"]: row for row in listed["conversations"]}
    assert (standing[here]["standing"], standing[here]["asked"]) == ("asking", 1)
    assert (standing[str(other.id)]["standing"], standing[str(other.id)]["asked"]) == (None, 0)
    await socket.send(**decision(question, "op"))
    await socket.read("turn_end")
    await overview(tab, lambda frame: frame["conversations"] == [])
    before = standing[here]["last_seq"]
    listed = (await user_client.get("/api/conversations")).json()
    (row,) = [row for row in listed["conversations"] if row["conversation_id"] == here]
    assert row["last_seq"] > before


async def test_a_tab_hears_of_a_conversation_that_begins_elsewhere_and_of_its_title(
    connect: Connect, person: User, stranger: User
):
    tab = await connect().open()
    await services.create_conversation(user=stranger, title="Not yours")
    made = await services.create_conversation(user=person)
    place = str(made.id)
    await overview(tab, lambda frame: frame["latest"] == {"conversation_id": place, "title": ""})
    await services.receive_message(conversation_id=made.id, user=person, text="help  me")
    titled = {"conversation_id": place, "title": "help me"}
    await overview(tab, lambda frame: frame["latest"] == titled)


async def test_the_report_of_a_sub_agent_comes_as_html_too(connect: Connect, settings: Any):
    settings.GOVERNANCE_APPROVAL = {}
    socket = await connect().open()
    await socket.send(
        type="message",
        client_id="m",
        text="spawn assistant say **Gold** <script>alert(1)</script>",
    )
    start = await socket.read("turn_start", lambda frame: bool(frame["reports"]))
    (report,) = start["reports"]
    assert report["html"].startswith("<p><strong>Gold</strong>")
    assert "<script" not in report["html"]
    await socket.read("turn_end", lambda frame: frame["turn_id"] == start["turn_id"])
    again = await connect().open()
    snapshot = await again.read("snapshot")
    blocks = [block for message in snapshot["messages"] for block in message["content"]]
    (shown,) = [block["sub_agent"] for block in blocks if block.get("sub_agent")]
    assert shown["html"] == report["html"]


WORKING = StatusMark(ConversationStatus.WORKING)
PLACES = [UUID(int=number) for number in range(1, 4)]


def three_at_work(**marks: StatusMark) -> Overview:
    seen = Overview()
    for name, place in zip("abc", PLACES, strict=True):
        seen.marks[1][place] = marks.get(name, WORKING)
    return seen


def tracker_of(place: UUID) -> OverviewTracker:
    return OverviewTracker(user_id=1, conversation_id=place)


def test_a_client_hears_of_all_conversations_but_its_own():
    mark = StatusMark(
        ConversationStatus.ASKING, asked_in=(PLACES[0],), tools_running=2, is_queued=True
    )
    seen = three_at_work(b=mark)
    seen.latest[1] = Conversation(pk=PLACES[2], title="Grüße")
    seen.edited[1] = datetime(2026, 1, 2, tzinfo=UTC)

    frame = tracker_of(PLACES[0]).changes(seen)

    assert frame == server_frames.Overview(
        conversations=[
            {
                "conversation_id": str(PLACES[1]),
                "standing": "asking",
                "asked_in": [str(PLACES[0])],
                "tools_running": 2,
                "is_queued": True,
            },
            {
                "conversation_id": str(PLACES[2]),
                "standing": "working",
                "asked_in": [],
                "tools_running": 0,
                "is_queued": False,
            },
        ],
        questions=[],
        latest={"conversation_id": str(PLACES[2]), "title": "Grüße"},
        edited_at="2026-01-02T00:00:00+00:00",
    )


def test_only_what_is_new_to_a_client_is_sent():
    tracker = tracker_of(PLACES[0])
    asking = StatusMark(ConversationStatus.ASKING)
    assert tracker.changes(three_at_work()) is not None
    assert tracker.changes(three_at_work()) is None
    assert tracker.changes(three_at_work(a=asking)) is None  # its own one
    assert tracker.changes(three_at_work(b=asking)) is not None
    assert tracker.changes(Overview()) is not None
    assert tracker.changes(Overview()) is None


def test_a_new_client_is_told_that_nothing_goes_on_elsewhere():
    tracker = tracker_of(PLACES[0])
    assert tracker.changes(Overview()) is not None
    assert tracker.changes(Overview()) is None


class Tab:
    def __init__(self, conversation_id: UUID, *, user_id: Any, told: Callable[[], object]) -> None:
        self.conversation_id = conversation_id
        self.user_id = user_id
        self._told = told

    async def catch_up_to(self, last_seq: int) -> None:
        pass

    def update_overview(self, overview: Overview) -> None:
        self._told()


async def test_a_poll_lets_others_in_between_two_sockets(person: User):
    told: list[str] = []

    def tell() -> None:
        told.append("overview")
        asyncio.get_running_loop().call_soon(told.append, "text")

    poller = LogPoller()
    tabs = [Tab(place, user_id=person.pk, told=tell) for place in PLACES[:3]]
    for tab in tabs:
        poller.subscribe(tab)
    await eventually(lambda: len(told) >= 6)
    for tab in tabs:
        await poller.unsubscribe(tab)
    assert told[:6] == ["overview", "text"] * 3


async def test_an_event_of_any_loop_starts_a_poll(
    person: User, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    settings.WEBCHAT_LOG_CHECK_INTERVAL = 3600.0
    monkeypatch.setattr(log_poller, "MIN_INTERVAL", 0.0)
    told, poller = asyncio.Event(), LogPoller()
    tab = Tab(PLACES[0], user_id=person.pk, told=told.set)

    async def publish() -> None:
        await poller.publish(PLACES[0], {"type": "turn_end"})

    async def is_told() -> None:
        await asyncio.wait_for(told.wait(), PATIENCE)
        told.clear()

    poller.subscribe(tab)
    await is_told()
    await asyncio.gather(is_told(), publish())
    await asyncio.gather(is_told(), asyncio.to_thread(asyncio.run, publish()))
    await poller.unsubscribe(tab)
