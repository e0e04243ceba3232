"""Signs of life: whatever a provider sends moves the timer of its own stream, and of no other."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from tests.support import PATIENCE, with_room
from tests.turns.chat_models.dialects import ANTHROPIC, GOOGLE, model_of
from tests.turns.chat_models.servers import Hold, gemini, messages
from tests.turns.chat_models.test_providers import ASKED, deltas
from tests.turns.chat_models.test_providers_failures import failed
from turns.core.chat_model import Stop, StopReason, StreamLimits

SILENCE = 1.0
WHOLE = 5.0  # in which a request reaches the server on a busy machine too
PINGS = 8
COMMENT = b": keep-alive\n\n"


def keep_alive(dialect):
    """What says nothing; Google's SDK reads no comments."""
    if dialect is GOOGLE:
        return gemini.text("")[0]
    return messages.PING if dialect is ANTHROPIC else COMMENT


def released_every(seconds, holds):
    """Release holds one after the other."""
    loop = asyncio.get_running_loop()
    for number, hold in enumerate(holds, start=1):
        loop.call_later(seconds * number, hold.released.set)


@pytest.mark.parametrize("place", ["before the first word", "after it"])
async def test_keep_alives_are_life_for_longer_than_the_limit_of_silence(serve, dialect, place):
    holds = [Hold() for _ in range(PINGS)]
    pings = [part for hold in holds for part in (hold, keep_alive(dialect))]
    text = dialect.text("Well.")
    said = [*pings, *text] if place == "before the first word" else [*text, *pings]
    await serve(dialect.unfinished(*said, *dialect.wire.end()))
    model = model_of(
        dialect, limits=StreamLimits(first_byte_timeout=PATIENCE, idle_timeout=SILENCE)
    )

    await model._connection()  # which takes its time where it is the first
    released_every(SILENCE / 4, holds)
    async with asyncio.timeout(PATIENCE):
        assert (await deltas(model))[-1] == Stop(StopReason.END)


async def test_keep_alives_of_one_stream_are_no_life_of_another(serve):
    """Both have the one client of their model."""
    holds = [Hold() for _ in range(400)]
    pings = [part for hold in holds for part in (hold, messages.PING)]
    silent = ANTHROPIC.unfinished(*ANTHROPIC.open_text("Well,"), Hold())
    await serve(ANTHROPIC.unfinished(*ANTHROPIC.open_text("Hm,"), *pings), silent)
    limits = StreamLimits(first_byte_timeout=PATIENCE, idle_timeout=0.5)
    model = model_of(ANTHROPIC, limits=limits)
    released_every(0.05, holds)

    async with aclosing(model.stream(ASKED)) as lively:
        for _begun in range(2):
            await anext(lively)
        going_on = asyncio.create_task(anext(lively))
        async with asyncio.timeout(with_room(5)):
            failure = await failed(model)
        going_on.cancel()
        await asyncio.wait({going_on})

    assert failure.code == "chat_model_stalled"


async def test_keep_alives_for_ever_end(serve, dialect):
    holds = [Hold() for _ in range(400)]
    pings = [part for hold in holds for part in (hold, keep_alive(dialect))]
    server = await serve(dialect.unfinished(*pings))
    limits = StreamLimits(first_byte_timeout=PATIENCE, idle_timeout=PATIENCE, request_timeout=WHOLE)
    model = model_of(dialect, limits=limits)
    await model._connection()
    released_every(0.05, holds)

    async with asyncio.timeout(PATIENCE):
        failure = await failed(model)
        await server.left.wait()

    assert failure.code == "chat_model_overtime"
    assert f"{WHOLE:g} s" in failure.message


async def test_the_limits_of_a_request_go_before_those_of_the_chat_model(serve):
    await serve(ANTHROPIC.unfinished(*ANTHROPIC.open_text("Well,"), Hold()))
    model = model_of(ANTHROPIC)
    request = replace(ASKED, limits=StreamLimits(idle_timeout=0.1))
    async with asyncio.timeout(PATIENCE):
        assert "0.1 s" in (await failed(model, request=request)).message
