"""Cancelling a turn closes the provider's socket, wherever the stream is; what was said by then is kept (C4, H2)."""

import asyncio
import time

import pytest

from tests.support import PATIENCE, with_room
from tests.turns.chat_models.dialects import model_of
from tests.turns.chat_models.servers import Break, Hold, Response
from tests.turns.core.runner_harness import BY_USER, RunnerHarness
from turns.core.exceptions import ChatModelError
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


async def test_a_cancelled_stream_leaves_the_next_request_a_working_pool(serve, dialect, harness):
    hold = Hold()
    await serve(
        response_at("in the text", dialect, hold), dialect.answer(dialect.text("And then?"))
    )
    model = model_of(dialect)
    turn, _model = harness.start(model=model)
    await hold.reached.wait()
    harness.token.cancel(BY_USER)
    await turn

    other = RunnerHarness()
    ending = await other.make_runner(model).run()
    await other.close()

    assert ending.status is TurnStatus.COMPLETED
    assert other.journal.text == "And then?"


async def test_what_was_said_before_the_connection_broke_is_kept(serve, dialect, harness):
    await serve(dialect.unfinished(*dialect.open_text("Once upon a"), Break()))

    with pytest.raises(ChatModelError) as raised:
        await harness.make_runner(model_of(dialect)).run()

    assert raised.value.code == "chat_model_dropped"
    (reply,) = harness.journal.replies
    assert (reply.message.texts[0].text, reply.interrupted) == ("Once upon a", True)


async def test_a_turn_calls_tools_through_the_provider(serve, pieced, harness):
    """Two calls side by side, one with bad arguments, one of an unknown tool. The model reads all of it."""
    calls = (
        pieced.wire.call(1, "call_a", "echo", text="first"),
        pieced.wire.call(2, "call_b", "echo", raw='{"text": '),
        pieced.wire.call(3, "call_c", "teleport", place="Mars"),
    )
    server = await serve(pieced.answer(*calls, calls=True), pieced.answer(pieced.text("All done.")))

    ending = await harness.make_runner(model_of(pieced)).run()

    assert ending.status is TurnStatus.COMPLETED
    first, broken, unknown = harness.journal.history[-2].tool_results
    assert (first.content, first.is_error) == ("first", False)
    assert "not valid JSON" in broken.content
    assert broken.is_error
    assert "teleport" in unknown.content
    assert unknown.is_error
    sent = str(server.requests[1].body["messages"])
    assert "not valid JSON" in sent
    assert sent.index("first") < sent.index("not valid JSON")
    assert harness.runner.usage["output_tokens"] > 0
    harness.assert_valid_history()


async def test_a_retry_is_told_in_the_conversation(serve, dialect, harness):
    bad = Response([b"{}"], status="503 Service Unavailable")
    await serve(bad, dialect.answer(dialect.text("Here.")))

    ending = await harness.make_runner(model_of(dialect)).run()

    assert ending.status is TurnStatus.COMPLETED
    assert harness.journal.notices == [
        ("retrying", "The model is not available; retrying in 1 s."),
    ]
    assert harness.journal.text == "Here."


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
