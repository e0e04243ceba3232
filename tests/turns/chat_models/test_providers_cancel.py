"""Cancelling a turn closes the provider's socket, wherever the stream is; what was said by then is kept (C4, H2)."""

import asyncio
import time
from contextlib import aclosing

import pytest

from tests.support import PATIENCE, with_room
from tests.turns.chat_models.dialects import model_of
from tests.turns.chat_models.servers import Hold, Response
from tests.turns.chat_models.test_providers import ASKED
from tests.turns.core.runner_harness import BY_USER, RunnerHarness
from turns.core.chat_model import TextDelta
from turns.core.turns import TurnStatus

BOUND = with_room(
    0.5
)  # from the cancel to the end of the socket; a turn has one second in all (C1)


@pytest.fixture
async def harness():
    harness = RunnerHarness()
    yield harness
    await harness.close()


def response_at(place, dialect, hold):
    """A response that waits for ever at a place."""
    match place:
        case "before the headers":
            return Response(before=[hold])
        case "after the headers":
            return Response([hold])
        case "in the text":
            return dialect.unfinished(*dialect.open_text("Once upon a"), hold)
        case "in the arguments":
            return dialect.unfinished(
                *dialect.open_text("Let me look."),
                *dialect.open_call("call_a", "echo", '{"text": "hal'),
                hold,
            )


@pytest.mark.parametrize(
    ("place", "kept"),
    [
        ("before the headers", None),
        ("after the headers", None),
        ("in the text", "Once upon a"),
        ("in the arguments", "Let me look."),
    ],
)
async def test_cancelling_a_turn_closes_the_providers_socket(serve, dialect, harness, place, kept):
    hold = Hold()
    server = await serve(response_at(place, dialect, hold))
    turn, _model = harness.start(model=model_of(dialect))
    async with asyncio.timeout(PATIENCE):
        await hold.reached.wait()
        if kept:
            await harness.journal.until("publish_text", 0)

    began = time.perf_counter()
    harness.token.cancel(BY_USER)
    async with asyncio.timeout(BOUND):
        await server.left.wait()
        ending = await turn

    assert time.perf_counter() - began < BOUND
    assert ending.status is TurnStatus.CANCELLED
    assert len(server.requests) == 1
    if kept is None:
        assert harness.journal.replies == []
    else:
        (reply,) = harness.journal.replies
        assert (reply.message.texts[0].text, reply.interrupted) == (kept, True)
        assert reply.message.tool_uses == ()  # cut off inside: dropped, never answered (H3)
    harness.assert_valid_history()


async def test_cancelling_a_turn_while_it_waits_for_a_retry(serve, dialect, harness):
    bad = Response([b"{}"], status="503 Service Unavailable")
    server = await serve(bad)
    turn, _model = harness.start(model=model_of(dialect, first_wait=60.0, max_wait=60.0))
    await harness.journal.until("notify", "retrying")

    harness.token.cancel(BY_USER)
    async with asyncio.timeout(BOUND):
        ending = await turn

    assert ending.status is TurnStatus.CANCELLED
    assert len(server.requests) == 1


@pytest.mark.parametrize("way", ["cancelled", "closed"])
async def test_a_stream_that_ends_between_two_events_closes_the_socket(serve, dialect, way):
    """No read of the SDK is then waiting that the cancel could interrupt: pydantic-ai takes locks between its reads."""
    hold = Hold()
    server = await serve(dialect.unfinished(*dialect.open_text("Once upon a"), hold))
    model = model_of(dialect)
    await model._connection()

    async def read() -> None:
        async with aclosing(model.stream(ASKED)) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextDelta) and way == "closed":
                    return
                if isinstance(delta, TextDelta):
                    asyncio.get_running_loop().call_soon(reading.cancel)

    async with asyncio.timeout(PATIENCE):
        reading = asyncio.create_task(read())
        await asyncio.wait([reading])
        await server.left.wait()
    assert reading.cancelled() is (way == "cancelled")
