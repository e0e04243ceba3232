"""The log of the server: ids in every line, one line for each accepted and settled cancel, turn's end and timeout."""

import io
import logging

import pytest

from governance import make_tool, registry
from governance.logs import KeyValueFormatter
from tests.turns.support import ChatDriver, FakeTools
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lines(settings):
    """What the site's own formatter has written, line by line, without times."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    shipped = settings.LOGGING["formatters"]["line"]
    assert shipped["()"] == "governance.logs.KeyValueFormatter"
    handler.setFormatter(KeyValueFormatter("{levelname} {name}: {message}", style="{"))
    loggers = [logging.getLogger(name) for name in ("governance", "turns", "shop")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield lambda what: [line for line in stream.getvalue().splitlines() if what in line]
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


async def test_each_cancel_and_each_end_of_a_turn_is_a_line_with_its_ids(
    chat: ChatDriver, fake_tools: FakeTools, lines
):
    chat.use_script([call("a", "held")], [text("Fine.")])
    turn_id = await chat.say()
    await chat.running(turn_id, "a")
    await chat.cancel(turn_id, note="what a person wrote")
    await chat.cancel(turn_id)
    turn = await chat.ended(turn_id)
    [accepted] = lines("A cancel was accepted")
    assert accepted == (
        f"INFO turns.log_lines: A cancel was accepted turn_id={turn_id} source=button mode=now"
        f" by_id={chat.user.pk} reason=user"
    )
    [settled] = lines("A cancel was settled")
    assert f"turn_id={turn_id} source=button outcome=cancelled settled_ms=" in settled
    [ended] = lines("A turn ended")
    assert f"turn_id={turn_id} conversation_id={turn.conversation_id}" in ended
    assert f"user_id={chat.user.pk} agent=assistant status=cancelled duration_ms=" in ended
    assert ended.endswith(" reason=user")
    assert not lines("what a person wrote")


async def test_the_cancel_of_one_call_names_it(chat: ChatDriver, fake_tools: FakeTools, lines):
    chat.use_script([call("a", "held")], [text("Fine.")])
    turn_id = await chat.say()
    await chat.running(turn_id, "a")
    await chat.cancel_call(turn_id, "a")
    await chat.ended(turn_id)
    for line in (*lines("A cancel was accepted"), *lines("A cancel was settled")):
        assert f"turn_id={turn_id} call_id=a source=button" in line
    [ended] = lines("A turn ended")
    assert "status=completed" in ended
    assert "reason" not in ended


async def test_what_was_queued_behind_a_cancelled_turn_has_its_line_too(
    chat: ChatDriver, fake_tools: FakeTools, lines
):
    chat.use_script([call("a", "held")])
    first = await chat.say()
    await chat.running(first, "a")
    second = await chat.say("and then?")
    await chat.cancel(first)
    await chat.ended(first)
    assert {line.split("turn_id=")[1][:36] for line in lines("A turn ended")} == {
        str(first),
        str(second),
    }
    assert not lines("and then")


async def test_a_timeout_says_of_what_turn_tool_and_limit(
    chat: ChatDriver, fake_tools: FakeTools, lines
):
    chat.use_script([call("a", "held", _meta={"timeout_ms": 50})], [text("Fine.")])
    turn = await chat.run()
    [line] = lines("A tool call timed out")
    assert line.startswith("WARNING governance.core.outcomes: A tool call timed out")
    for fact in (
        f"turn_id={turn.id}",
        f"conversation_id={turn.conversation_id}",
        "tool_name=held",
        "call_id=a",
        "limit=total",
        "seconds=0.05",
    ):
        assert fact in line.split()


async def test_lines_of_a_tool_carry_the_ids_of_its_turn_wherever_it_runs(chat: ChatDriver, lines):
    shop = logging.getLogger("shop.orders")

    async def look() -> str:
        shop.info("looked up", extra={"order": "A 7"})
        return "here"

    def look_in_a_thread() -> str:
        shop.info("looked up in a thread")
        return "here"

    made = [make_tool(look), make_tool(look_in_a_thread)]
    for each in made:
        registry.register(each)
    try:
        chat.use_script([call("a", "look"), call("b", "look_in_a_thread")], [text("Fine.")])
        turn = await chat.run()
        shop.info("afterwards")
    finally:
        for each in made:
            registry.unregister(each.name)
    ids = f"turn_id={turn.id} conversation_id={turn.conversation_id}"
    assert lines("looked up") == [
        f'INFO shop.orders: looked up order="A 7" {ids}',
        f"INFO shop.orders: looked up in a thread {ids}",
    ]
    assert lines("afterwards") == ["INFO shop.orders: afterwards"]
