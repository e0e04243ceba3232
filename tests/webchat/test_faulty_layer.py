"""A channel layer that loses, repeats and reorders. Sockets show the log all the same, soon and without a reload (G9)."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from channels.layers import InMemoryChannelLayer, get_channel_layer
from django.contrib.auth.models import User

from scripts.servers import NotInstalled, Redis, find_redis, passing
from tests.support import PATIENCE, eventually
from tests.webchat.sockets import Closed, Socket
from turns import selectors
from turns.events import sinks
from turns.selectors import conversation_status
from turns.services import ConversationSummary
from webchat import broadcast
from webchat.log_poller import log_poller

pytestmark = pytest.mark.usefixtures("site")

Connect = Callable[..., Socket]
MEMORY = {"BACKEND": "channels.layers.InMemoryChannelLayer"}


def use_layer(settings: Any, **faults: Any) -> None:
    backend = "tests.faults.faulty_layer.FaultyLayer"
    settings.CHANNEL_LAYERS = {
        "default": {"BACKEND": backend, "CONFIG": {"inner": MEMORY, **faults}}
    }


class AbsentLayer(InMemoryChannelLayer):
    """A layer whose broker is away."""

    async def new_channel(self, prefix: str = "specific.") -> str:
        raise ConnectionError("no broker")

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        raise ConnectionError("no broker")


async def say(socket: Socket, text: str) -> None:
    await socket.send(type="message", client_id=str(uuid4()), text=text)
    await socket.read("turn_end")


@pytest.mark.usefixtures("through_layer")
async def test_a_layer_that_loses_everything_delays_events_by_one_look_at_the_log(
    connect: Connect, settings: Any
):
    use_layer(settings, drop=1.0)
    settings.WEBCHAT_LOG_CHECK_INTERVAL = 0.05
    socket = await connect().open()
    await say(socket, "wait 0.01")
    assert socket.seqs == list(range(1, len(socket.seqs) + 1))
    assert all(frame["type"] != "heartbeat" for frame in socket.seen)


@pytest.mark.usefixtures("through_layer")
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_the_layer_does_two_tabs_see_the_log_as_it_is(
    connect: Connect, conversation: ConversationSummary, settings: Any, seed: int
):
    use_layer(settings, seed=seed, drop=0.3, duplicate=0.4, late=0.5, delay=0.05)
    settings.WEBCHAT_LOG_CHECK_INTERVAL = 0.05
    tabs = [await connect().open(), await connect().open()]
    for tab in tabs:
        await tab.ping()  # its snapshot was taken before anything happens
    await say(tabs[0], "wait 0.02\nwait 0.01\nwait 0.03")
    await say(tabs[0], "help")
    log = await selectors.conversation_events(conversation_id=conversation.id, after=0)
    for tab in tabs:
        while not tab.seqs or tab.seqs[-1] < log[-1]["seq"]:
            await tab.next()
        assert tab.seqs == [event["seq"] for event in log]
        assert [event["type"] for event in tab.events] == [event["type"] for event in log]


@pytest.fixture
def redis(through_layer: None, settings: Any) -> Iterator[Redis]:
    try:
        find_redis()
    except NotInstalled as missing:
        pytest.skip(str(missing))
    with passing(Redis) as server:
        settings.CHANNEL_LAYERS = {
            "default": {
                "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
                "CONFIG": {"hosts": [server.url]},
            }
        }
        yield server


async def test_what_happens_in_this_process_needs_no_layer(connect: Connect, settings: Any):
    use_layer(settings, drop=1.0)
    settings.WEBCHAT_LOG_CHECK_INTERVAL = 3_600
    tabs = [await connect().open(), await connect().open()]
    for tab in tabs:
        await tab.ping()
    await say(tabs[0], "help")
    await tabs[1].read("turn_end")
    for tab in tabs:
        assert tab.seqs == list(range(1, len(tab.seqs) + 1))
        assert any(frame["type"] == "text_delta" for frame in tab.seen)
    assert [frame for frame in tabs[0].seen if frame["type"] == "text_delta"] == [
        frame for frame in tabs[1].seen if frame["type"] == "text_delta"
    ]


async def test_what_comes_back_through_the_layer_is_not_shown_again(
    connect: Connect, settings: Any
):
    use_layer(settings, duplicate=1.0)
    socket = await connect().open()
    await socket.ping()
    await say(socket, "help")
    await socket.ping()
    deltas = [frame for frame in socket.seen if frame["type"] == "text_delta"]
    ends = [delta["offset"] + len(delta["text"]) for delta in deltas]
    assert [delta["offset"] for delta in deltas] == [0, *ends[:-1]]
    assert socket.seqs == list(range(1, len(socket.seqs) + 1))


async def test_an_event_of_another_loop_of_this_process_reaches_the_socket(
    connect: Connect, conversation: ConversationSummary, settings: Any
):
    settings.WEBCHAT_LOG_CHECK_INTERVAL = 3_600
    socket = await connect().open()
    await socket.ping()
    delta = {"type": "text_delta", "turn_id": str(uuid4()), "text": "From afar.", "offset": 0}

    async def push() -> None:
        sinks.push(conversation.id, delta)

    await asyncio.to_thread(asyncio.run, push())
    assert (await socket.read("text_delta"))["text"] == "From afar."


@pytest.mark.usefixtures("through_layer")
async def test_a_socket_that_its_layer_has_forgotten_is_a_member_again_at_the_next_heartbeat(
    connect: Connect, conversation: ConversationSummary, person: User, settings: Any
):
    settings.WEBCHAT_HEARTBEAT_INTERVAL = 0.1
    socket = await connect().open()
    layer = get_channel_layer()
    groups = broadcast.conversation_group(conversation.id), broadcast.user_group(person.pk)
    for group in groups:
        [channel] = layer.groups[group]
        await layer.group_discard(group, channel)  # as when a membership expires

    def is_member() -> bool:
        return all(channel in layer.groups.get(group, ()) for group in groups)

    await eventually(is_member)

    async def hears_text() -> bool:  # unless the log has shown the answer before
        await say(socket, "help")
        return any(frame["type"] == "text_delta" for frame in socket.seen)

    await eventually(hears_text, timeout=PATIENCE)


async def test_after_a_restart_of_redis_streamed_text_comes_again_and_no_event_is_missing(
    connect: Connect, settings: Any, redis: Redis
):
    settings.WEBCHAT_LOG_CHECK_INTERVAL = 0.1
    settings.WEBCHAT_HEARTBEAT_INTERVAL = 0.2  # at each of which membership is renewed
    socket = await connect().open()
    seen = 0

    async def hears_text() -> bool:
        await say(socket, "help")
        return any(frame["type"] == "text_delta" for frame in socket.seen[seen:])

    await eventually(hears_text, timeout=PATIENCE)
    await asyncio.to_thread(redis.crash)
    await say(socket, "wait 0.01")
    await asyncio.to_thread(redis.start)
    seen = len(socket.seen)
    await eventually(hears_text, timeout=PATIENCE)
    assert socket.seqs == list(range(1, len(socket.seqs) + 1))


async def test_a_page_that_opens_while_redis_is_away_sees_the_log_and_hears_the_layer_when_it_is_back(
    connect: Connect, settings: Any, redis: Redis
):
    settings.WEBCHAT_LOG_CHECK_INTERVAL = settings.WEBCHAT_HEARTBEAT_INTERVAL = 0.1
    await asyncio.to_thread(redis.crash)
    socket = await connect().open()
    await say(socket, "help")
    assert socket.seqs == list(range(1, len(socket.seqs) + 1))
    assert all(frame["type"] != "text_delta" for frame in socket.seen)
    await asyncio.to_thread(redis.start)
    assert await socket.close_code() == 1013

    async def hears_text() -> bool:  # a page that opens too soon is sent away once more
        again = connect()
        with suppress(Closed):
            await again.open(after=max(socket.seqs))
            await say(again, "help")
        return any(frame["type"] == "text_delta" for frame in again.seen)

    await eventually(hears_text, timeout=PATIENCE)


async def test_without_a_layer_sockets_are_refused_for_the_same_reasons(
    connect: Connect, settings: Any
):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": f"{__name__}.AbsentLayer"}}
    assert await connect(token="tk_wrong", origin=None).close_code_after_connecting() == 4401
    assert await connect(conversation_id="a/b").close_code_after_connecting() == 4404
    assert await connect(conversation_id=uuid4()).close_code_after_connecting() == 4404
    assert await connect(origin="http://evil.example").connect() is False


async def test_one_query_looks_for_all_sockets(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, settings: Any
):
    settings.WEBCHAT_LOG_CHECK_INTERVAL = 3_600
    asked: list[Any] = []
    look = conversation_status.look

    async def counted(*, owners: Any, conversations: Any) -> Any:
        asked.append(set(conversations))
        return await look(owners=owners, conversations=conversations)

    for _ in range(5):
        await connect().open()
    monkeypatch.setattr(conversation_status, "look", counted)
    await log_poller.poll()
    # A socket that comes rings, so another look may be under way.
    assert {len(ids) for ids in asked} == {1}
    assert len(asked) <= 2


@pytest.mark.usefixtures("through_layer")
async def test_a_look_that_fails_is_not_the_last_one(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, settings: Any
):
    settings.WEBCHAT_LOG_CHECK_INTERVAL = 0.02
    failures: list[int] = []
    look = conversation_status.look

    async def unlucky(*, owners: Any, conversations: Any) -> Any:
        if len(failures) < 3:
            failures.append(1)
            raise OSError("no database")
        return await look(owners=owners, conversations=conversations)

    monkeypatch.setattr(conversation_status, "look", unlucky)
    use_layer(settings, drop=1.0)
    socket = await connect().open()
    await say(socket, "wait 0.01")
    await eventually(lambda: len(failures) == 3)
