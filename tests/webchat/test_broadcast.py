"""Events on their way to sockets: what goes through the layer, and what a dead one does not break."""

import asyncio
import threading
from typing import Any
from uuid import uuid4

import pytest
from channels.layers import InMemoryChannelLayer, get_channel_layer

from tests.support import PATIENCE, eventually
from turns.events import sinks
from webchat import broadcast
from webchat.broadcast import ChannelLayerSink, conversation_group, message_for
from webchat.feed import RecentDeltas
from webchat.rate_limits import RateLimit
from webchat.send_queue import TRY_AGAIN, SendQueue

pytestmark = pytest.mark.usefixtures("through_layer")

SMALL = {"type": "turn_end", "seq": 7, "turn_id": "t", "status": "completed"}


async def received(group: str, publish: Any) -> dict[str, Any]:
    layer = get_channel_layer()
    channel = await layer.new_channel()
    await layer.group_add(group, channel)
    await publish()
    async with asyncio.timeout(PATIENCE):
        return await layer.receive(channel)


async def test_the_registered_sink_sends_events_to_the_conversations_group():
    conversation_id = uuid4()
    message = await received(
        conversation_group(conversation_id), lambda: sinks.publish(conversation_id, [SMALL])
    )
    assert (message["type"], message["event"]) == ("conversation.event", SMALL)


def test_a_large_event_goes_as_its_number():
    large = {**SMALL, "result": "é" * 20_000}
    assert "event" not in message_for(large)
    assert message_for(large)["seq"] == 7
    assert message_for({"type": "text_delta", "text": "x" * 40_000, "offset": 3}) is None
    assert message_for({"type": "text_delta", "text": "x", "offset": 3}) is not None


async def test_a_layer_that_fails_is_logged_once_and_never_raises(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def dead(*_: Any) -> None:
        raise ConnectionError("no broker")

    send = InMemoryChannelLayer.group_send
    monkeypatch.setattr(InMemoryChannelLayer, "group_send", dead)
    sink = ChannelLayerSink()
    for _ in range(3):
        await sink.publish(uuid4(), SMALL)
    monkeypatch.setattr(InMemoryChannelLayer, "group_send", send)
    await sink.publish(uuid4(), SMALL)
    gone, back = (record.getMessage() for record in caplog.records)
    assert gone == "The channel layer does not answer: no broker"
    assert "answers again" in back


async def test_a_layer_that_hangs_holds_up_a_turn_once_and_not_at_every_event(
    monkeypatch: pytest.MonkeyPatch, settings: Any
):
    settings.WEBCHAT_LAYER_TIMEOUT = 0.05
    asked = 0

    async def hangs(*_: Any) -> None:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()

    monkeypatch.setattr(InMemoryChannelLayer, "group_send", hangs)
    sink = ChannelLayerSink()
    async with asyncio.timeout(PATIENCE):
        for _ in range(100):
            await sink.publish(uuid4(), SMALL)
    assert asked == 1


async def test_a_layer_that_hung_is_used_again_when_it_answers(
    monkeypatch: pytest.MonkeyPatch, settings: Any
):
    settings.WEBCHAT_LAYER_TIMEOUT = 0.02
    monkeypatch.setattr(broadcast, "RETRY_INTERVAL", 0.0)
    send = InMemoryChannelLayer.group_send

    async def hangs(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(InMemoryChannelLayer, "group_send", hangs)
    sink, conversation_id = ChannelLayerSink(), uuid4()
    await sink.publish(conversation_id, SMALL)
    monkeypatch.setattr(InMemoryChannelLayer, "group_send", send)
    layer = get_channel_layer()
    channel = await layer.new_channel()
    await layer.group_add(conversation_group(conversation_id), channel)
    await sink.publish(conversation_id, {**SMALL, "seq": 8})
    tried = await asyncio.wait_for(layer.receive(channel), PATIENCE)
    left = await asyncio.wait_for(layer.receive(channel), PATIENCE)

    async def sent() -> bool:
        await sink.publish(conversation_id, {**SMALL, "seq": 9})
        return not layer.channels[channel].empty()

    await eventually(sent)
    assert tried["event"]["seq"] == 8
    assert left["seq"] == 7
    assert (await layer.receive(channel))["event"]["seq"] == 9


async def test_a_layer_that_is_slow_holds_up_nobody_and_what_was_left_meanwhile_is_told_by_number(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(broadcast, "SEND_TIMEOUT", 0.01)
    send, answering = InMemoryChannelLayer.group_send, asyncio.Event()

    async def slow(*arguments: Any) -> None:
        await answering.wait()
        await send(*arguments)

    monkeypatch.setattr(InMemoryChannelLayer, "group_send", slow)
    layer, sink = get_channel_layer(), ChannelLayerSink()
    ours, theirs = uuid4(), uuid4()
    channel = await layer.new_channel()
    for conversation_id in (ours, theirs):
        await layer.group_add(conversation_group(conversation_id), channel)

    for seq in (7, 8, 9):
        await sink.publish(ours, {**SMALL, "seq": seq})
    await sink.publish(theirs, SMALL)
    answering.set()
    async with asyncio.timeout(PATIENCE):
        told = [await layer.receive(channel) for _ in range(3)]
    assert told[0]["event"]["seq"] == 7
    assert sorted(message["seq"] for message in told[1:]) == [7, 9]


async def test_an_event_that_fails_late_does_not_take_back_how_far_the_log_has_come(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(broadcast, "SEND_TIMEOUT", 0.01)
    monkeypatch.setattr(broadcast, "RETRY_INTERVAL", 0.0)
    send, failing = InMemoryChannelLayer.group_send, asyncio.Event()

    async def fails_late(*_: Any) -> None:
        await failing.wait()
        raise ConnectionError("no broker")

    monkeypatch.setattr(InMemoryChannelLayer, "group_send", fails_late)
    layer, sink = get_channel_layer(), ChannelLayerSink()
    ours, theirs, channel = uuid4(), uuid4(), await layer.new_channel()
    await layer.group_add(conversation_group(ours), channel)
    for seq in (7, 8, 9):
        await sink.publish(ours, {**SMALL, "seq": seq})
    monkeypatch.setattr(InMemoryChannelLayer, "group_send", send)
    failing.set()

    async def told() -> bool:
        await sink.publish(theirs, SMALL)
        return channel in layer.channels  # it is made as it gets its first message

    await eventually(told)
    assert (await layer.receive(channel))["seq"] == 9


async def test_what_another_loop_publishes_wakes_the_loop_of_the_sockets():
    layer = get_channel_layer()
    channel, conversation_id = await layer.new_channel(), uuid4()
    await broadcast.join(channel, conversation_group(conversation_id))
    receiving = asyncio.create_task(layer.receive(channel))
    await asyncio.sleep(0)

    def elsewhere() -> None:
        asyncio.run(ChannelLayerSink().publish(conversation_id, SMALL))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    try:
        message = await asyncio.wait_for(receiving, PATIENCE)
    finally:
        await asyncio.to_thread(thread.join)
    assert message["event"] == SMALL


def test_pieces_go_on_where_the_stored_text_ends():
    pieces = RecentDeltas()
    pieces.add({"turn_id": "t", "offset": 0, "text": "old message"})
    pieces.add({"turn_id": "t", "offset": 0, "text": "Hello"})
    pieces.add({"turn_id": "t", "offset": 5, "text": ", wor"})
    pieces.add({"turn_id": "t", "offset": 10, "text": "ld"})
    assert pieces.complete("Hello, w", turn_id="t") == "Hello, world"
    assert pieces.complete("", turn_id="t") == "Hello, world"
    assert pieces.complete("other", turn_id="u") == "other"


def test_the_pieces_of_a_complete_message_are_forgotten():
    pieces = RecentDeltas()
    pieces.add({"turn_id": "t", "offset": 0, "text": "Hello"})
    pieces.finish("u", step=1)
    assert pieces.complete("", turn_id="t") == "Hello"
    pieces.finish("t", step=1)
    assert pieces.complete("", turn_id="t") == ""


def test_pieces_that_do_not_fit_are_left_out():
    pieces = RecentDeltas()
    pieces.add({"turn_id": "t", "offset": 40, "text": "late"})
    assert pieces.complete("short", turn_id="t") == "short"
    assert pieces.complete("x" * 40, turn_id="t") == "x" * 40 + "late"


def test_a_rate_limit_is_a_sliding_minute():
    now = 0.0
    limit = RateLimit(2, clock=lambda: now)
    assert [limit.allow() for _ in range(3)] == [True, True, False]
    now = 59.9
    assert not limit.allow()
    now = 60.0
    assert limit.allow()


class SlowClient:
    """What a send queue writes to: takes a frame only when it is let."""

    def __init__(self) -> None:
        self.frames: list[str] = []
        self.closed: list[int] = []
        self.reads = asyncio.Event()

    async def send(self, frame: str) -> None:
        await self.reads.wait()
        self.frames.append(frame)

    async def close(self, code: int) -> None:
        self.closed.append(code)


async def nothing() -> None:
    """Have nothing more to send."""


async def test_a_slow_client_gets_no_more_than_fits_and_is_refilled_when_there_is_room(
    settings: Any,
):
    settings.WEBCHAT_OUTBOX_FRAMES = 3
    client, refilled = SlowClient(), asyncio.Event()
    send_queue = SendQueue(send=client.send, close=client.close)

    async def on_room() -> None:
        refilled.set()

    assert [send_queue.offer(str(number)) for number in range(5)] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert send_queue.is_behind
    writing = asyncio.create_task(send_queue.run(on_room))
    client.reads.set()
    async with asyncio.timeout(PATIENCE):
        await refilled.wait()
    assert client.frames == ["0", "1", "2"]
    assert send_queue.offer("5")
    send_queue.close(1012)
    await writing
    assert client.closed == [1012]


async def test_the_outbox_is_bounded_in_bytes_too_but_takes_one_frame_of_any_size(settings: Any):
    settings.WEBCHAT_OUTBOX_BYTES = 100
    client = SlowClient()
    send_queue = SendQueue(send=client.send, close=client.close)
    assert send_queue.offer("é" * 1_000)
    assert not send_queue.offer("x")


async def test_answers_are_queued_before_a_close_and_nothing_after_it():
    client = SlowClient()
    client.reads.set()
    send_queue = SendQueue(send=client.send, close=client.close)
    send_queue.put("last words")
    send_queue.close(4400)
    send_queue.put("too late")
    send_queue.close(4429)
    await send_queue.run(nothing)
    assert (client.frames, client.closed) == (["last words"], [4400])


async def test_a_client_that_never_reads_is_let_go(settings: Any):
    settings.WEBCHAT_SEND_TIMEOUT = 0.05
    client = SlowClient()
    send_queue = SendQueue(send=client.send, close=client.close)
    send_queue.put("x")
    await send_queue.run(nothing)
    assert client.closed == [TRY_AGAIN]


async def test_a_client_that_never_reads_is_closed_for_the_reason_that_was_there_first(
    settings: Any,
):
    settings.WEBCHAT_SEND_TIMEOUT = 0.05
    client = SlowClient()
    send_queue = SendQueue(send=client.send, close=client.close)
    send_queue.put("x")
    send_queue.close(1012)
    await send_queue.run(nothing)
    assert (client.closed, send_queue.close_code) == ([1012], 1012)


async def test_a_close_for_which_the_client_leaves_no_room_does_not_wait_for_ever(settings: Any):
    settings.WEBCHAT_SEND_TIMEOUT = 0.05
    client = SlowClient()

    async def close(_code: int) -> None:
        await client.reads.wait()

    send_queue = SendQueue(send=client.send, close=close)
    send_queue.put("x")
    with pytest.raises(TimeoutError):
        await send_queue.run(nothing)


async def test_a_client_that_asks_and_never_reads_is_let_go(settings: Any):
    settings.WEBCHAT_OUTBOX_FRAMES = 2
    client = SlowClient()
    send_queue = SendQueue(send=client.send, close=client.close)
    writing = asyncio.create_task(send_queue.run(nothing))
    for _ in range(20):
        send_queue.put("answer")
    assert send_queue.is_closing
    client.reads.set()
    await eventually(lambda: client.closed == [TRY_AGAIN])
    await writing


async def test_a_client_that_has_gone_ends_the_writing_quietly():
    async def gone(_frame: str) -> None:
        raise OSError("broken pipe")

    send_queue = SendQueue(send=gone, close=SlowClient().close)
    send_queue.put("x")
    async with asyncio.timeout(PATIENCE):
        await send_queue.run(nothing)


async def test_streamed_text_reaches_a_slow_sink_in_order_and_before_the_next_event():
    taken: list[dict[str, Any]] = []
    may_go = asyncio.Event()

    class SlowSink:
        async def publish(self, _conversation_id: Any, event: dict[str, Any]) -> None:
            await may_go.wait()
            taken.append(event)

    sink, conversation_id = SlowSink(), uuid4()
    sinks.register(sink)
    try:
        for offset in range(4):
            piece = {"type": "text_delta", "turn_id": "t", "text": str(offset), "offset": offset}
            sinks.push(conversation_id, piece)
            await asyncio.sleep(0)
        publishing = asyncio.create_task(sinks.publish(conversation_id, [SMALL]))
        may_go.set()
        await publishing
    finally:
        sinks.unregister(sink)
    assert [event["type"] for event in taken] == ["text_delta", "text_delta", "turn_end"]
    assert "".join(event["text"] for event in taken[:-1]) == "0123"
