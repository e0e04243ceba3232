"""The log of the server: ids in every line, one line for each cancel, turn's end and timeout."""

import io
import json
import logging
import logging.config
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.utils import translation

from governance import make_tool, registry
from governance.logs import KeyValueFormatter
from governance.services import save_default_policy, save_tool_policy
from tests.turns.row_factory import RowFactory, said, use
from tests.turns.support import ChatDriver, FakeTools, in_database, row
from turns import services
from turns.models import Conversation, Repair
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "tulip-mill"


LOGGERS = ("governance", "turns", "shop")


@contextmanager
def written(formatter: logging.Formatter) -> Iterator[io.StringIO]:
    """What a handler with this formatter writes of the lines at INFO."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield stream
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.fixture
def lines(settings):
    """What the site's own formatter has written, line by line, without times."""
    shipped = settings.LOGGING["formatters"]["line"]
    assert shipped["()"] == "governance.logs.KeyValueFormatter"
    with written(KeyValueFormatter("{levelname} {name}: {message}", style="{")) as stream:
        yield lambda what: [line for line in stream.getvalue().splitlines() if what in line]


@pytest.fixture
def objects(settings):
    """The same with `LOG_FORMAT=json`: every line is read as an object, and those with a message are returned."""
    shipped = settings.LOGGING["formatters"]["json"]
    formatter = logging.config.DictConfigurator({"version": 1}).configure_formatter({**shipped})
    with written(formatter) as stream:
        yield lambda message: [
            found
            for line in stream.getvalue().splitlines()
            if (found := json.loads(line))["message"] == message
        ]


def assert_one_line(lines, objects, message: str, facts: dict[str, Any]) -> None:
    """A message stands on one line in either format, with these facts, and with nothing that somebody wrote."""
    [line] = lines(message)
    [found] = objects(message)
    for name, value in facts.items():
        assert f"{name}={value}" in line.split(), line
        assert str(found[name]) == str(value), found
    assert SECRET not in line + json.dumps(found)


async def test_each_cancel_and_each_end_of_a_turn_is_a_line_with_its_ids(
    chat: ChatDriver, fake_tools: FakeTools, lines
):
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
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
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
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
    first = await chat.begin([call("a", "held")])
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
    turn = await chat.play([call("a", "held", _meta={"timeout_ms": 50})], [text("Fine.")])
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
        turn = await chat.play([call("a", "look"), call("b", "look_in_a_thread")], [text("Fine.")])
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


@pytest.mark.usefixtures("without_workspace")
async def test_an_abandoned_body_is_a_line_and_so_is_its_late_end(
    chat: ChatDriver, fake_tools: FakeTools, lines, objects, settings
):
    settings.GOVERNANCE_CANCEL_GRACE = 0.05
    turn = await chat.play(
        [call("a", "stubborn", gate=SECRET, _meta={"timeout_ms": 50})], [text("Fine.")]
    )
    ids = {
        "turn_id": turn.id,
        "conversation_id": turn.conversation_id,
        "tool_name": "stubborn",
        "call_id": "a",
    }
    assert_one_line(lines, objects, "A tool call was abandoned", ids)
    assert lines("was abandoned")[0].startswith("WARNING ")
    assert not lines("A tool call settled late")
    fake_tools.open(SECRET)
    await chat.sink.until("tool_settled", tool_id="a")
    assert_one_line(lines, objects, "A tool call settled late", {**ids, "kind": "returned"})


async def test_a_repaired_history_is_a_line_for_each_repair(
    chat: ChatDriver, fake_tools: FakeTools, lines, objects
):
    def plant():
        factory = RowFactory(conversation=Conversation.objects.get(pk=chat.id))
        broken = factory.turn("completed")
        factory.message(broken, "user", said(SECRET))
        factory.message(broken, "assistant", said(SECRET), use("a", text=SECRET))
        return broken

    broken = await in_database(plant)
    chat.use_script([text("Fine.")])
    for _ in range(2):  # what is repaired is not repaired again
        await chat.sink.until_ended(await chat.say())
    repair = await row(Repair)
    facts = {
        "conversation_id": chat.id,
        "turn_id": broken.pk,
        "call_id": "a",
        "kind": "missing_result",
        "cause": repair.cause,
        "found_when": repair.found_when,
    }
    assert_one_line(lines, objects, "A history was repaired", facts)


async def test_a_saved_limit_is_a_line_with_both_values_and_who(
    chat: ChatDriver, fake_tools: FakeTools, lines, objects
):
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])

    def save(timeout_ms):
        save_tool_policy(
            tool_name="held", values={"timeout_ms": timeout_ms}, by=chat.user, reason=SECRET
        )

    await in_database(partial(save, 60_000))
    fake_tools.open("a")
    await chat.ended(turn_id)
    facts = {"subject": "held", "action": "add", "by_id": chat.user.pk}
    assert_one_line(lines, objects, "An edit was saved", facts)
    [found] = objects("An edit was saved")
    assert found["timeout_ms"] == "None→60000"
    assert found["version"] == 1


async def test_the_line_of_an_edit_is_in_english_whoever_edits(chat: ChatDriver, objects):
    def save():
        with translation.override("de"):
            save_default_policy(values={"timeout_ms": 60_000}, by=chat.user)

    await in_database(save)
    [found] = objects("An edit was saved")
    assert found["subject"] == "Default limits"


async def test_another_limit_for_one_running_call_is_a_line_with_its_ids(
    chat: ChatDriver, fake_tools: FakeTools, lines, objects
):
    turn_id = await chat.begin([call("a", "held", gate=SECRET)], [text("Fine.")])
    asked = {"turn_id": turn_id, "tool_id": "a", "user": chat.user, "op_id": "once"}
    for _ in range(2):  # the same operation, sent again
        await services.set_deadline(**asked, timeout_ms=90_000, note=SECRET)
    fake_tools.open(SECRET)
    turn = await chat.ended(turn_id)
    facts = {
        "turn_id": turn_id,
        "conversation_id": turn.conversation_id,
        "call_id": "a",
        "by_id": chat.user.pk,
        "timeout_ms": 90_000,
    }
    assert_one_line(lines, objects, "Another limit for a call was accepted", facts)
