"""The examples of docs/howto/extend.md, run: a chat model, a sink, the signals, a source of limits."""

import dataclasses
import importlib
import logging
import re
import sys

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.dispatch import Signal
from django.test import override_settings

import governance.signals
import turns.signals
from governance import CancelSource, make_tool, registry
from governance import services as governance_services
from governance.core.policy import PolicyLevels, ToolLimits
from governance.db import run_in_db_thread
from tests.docs.pages import DOCS, ROOT, python_blocks, section
from tests.support import LONG_PATIENCE, eventually, run_program
from turns import selectors, services
from turns.chat_models.catalog import get_chat_model
from turns.core import chat_model
from turns.core.messages import TextBlock, ToolResultBlock, ToolUseBlock
from turns.events import sinks
from turns.running import runtime

PAGE = DOCS / "howto" / "extend.md"
SIGNALS = (governance.signals, turns.signals)


def block_with(text: str) -> str:
    """Return the block of the page in which this stands."""
    [block] = [block for block in python_blocks(PAGE) if text in block]
    return block


def rows_under(heading: str) -> list[list[str]]:
    """Return the cells of the tables in a section."""
    lines = section(PAGE, heading).splitlines()
    return [
        [cell.strip() for cell in line[1:-1].split("|")] for line in lines if line.startswith("| ")
    ]


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a function that imports a block of the page."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def load(text: str):
        name = f"block_{len(made)}_of_the_page"
        (tmp_path / f"{name}.py").write_text(block_with(text), "utf-8")
        made.append(name)
        return importlib.import_module(name)

    yield load
    get_chat_model.cache_clear()
    for name in made:
        sys.modules.pop(name, None)


async def order_status(order: int) -> str:
    """Say how far an order is."""
    return f"order {order} is on its way"


@pytest.fixture
async def site(transactional_db):
    """A site that runs turns, and its user."""
    registry.register(make_tool(order_status))
    yield await run_in_db_thread(User.objects.create_superuser)("ada")
    await runtime.stop(grace=0)
    registry.unregister("order_status")
    await run_in_db_thread(connections.close_all)()


async def test_the_chat_model_asks_for_a_tool_and_the_sink_hears_of_it(site, load):
    agents, apps = load("class OrderClerk"), load("class EventCounter")
    sinks.register(apps.counter)
    try:
        with override_settings(TURNS_CHAT_MODEL=f"{agents.__name__}:make_model"):
            begun = await services.create_conversation(user=site)
            received = await services.receive_message(
                conversation_id=begun.id, user=site, text="Where is my order?"
            )
            await eventually(lambda: apps.counter.seen["turn_end"], timeout=LONG_PATIENCE)
            turn = await selectors.get_turn(turn_id=received.turn_id, user=site)
    finally:
        sinks.unregister(apps.counter)
    assert turn["status"] == "completed"
    assert [call["tool_name"] for call in turn["calls"]] == ["order_status"]
    history = await selectors.history(conversation_id=begun.id, user=site)
    assert "I have looked: order 7 is on its way" in str(history)
    assert apps.counter.seen["tool_start"] == apps.counter.seen["tool_result"] == 1


async def test_the_receivers_hear_of_an_edit_and_of_a_cancel(site, load, caplog):
    receivers = load("@receiver(policy_changed)")
    try:
        with caplog.at_level(logging.INFO, receivers.__name__):
            await run_in_db_thread(governance_services.save_tool_policy)(
                tool_name="order_status",
                values={"timeout_ms": 5_000},
                by=site,
            )
            begun = await services.create_conversation(user=site)
            received = await services.receive_message(
                conversation_id=begun.id, user=site, text="wait 600"
            )
            await services.request_cancel(
                turn_id=received.turn_id, user=site, source=CancelSource.API
            )
            await eventually(lambda: "cancelled by" in caplog.text, timeout=LONG_PATIENCE)
    finally:
        governance.signals.policy_changed.disconnect(receivers.note_the_edit)
        turns.signals.cancel_settled.disconnect(receivers.note_the_cancel)
    assert re.search(r"Limits of order_status edited, version \d+", caplog.text)
    assert re.search(r"A turn was cancelled by api, within \d+\.\d{3} s", caplog.text)


def test_the_page_has_every_signal_with_its_arguments():
    cells = [row[:2] for row in rows_under("Signals")[1:]]
    told: dict[str, set[str]] = {}
    for signal, argument in cells:
        if signal:
            told[signal.strip("`")] = set()
        told[[*told][-1]].add(argument.strip("`"))
    told.pop("---", None)
    for module in SIGNALS:
        for name, value in vars(module).items():
            if isinstance(value, Signal):
                assert len(told.pop(f"{module.__name__}.{name}")) >= 3
    assert told == {}


def test_the_page_has_every_field_of_a_request_and_everything_that_may_be_yielded():
    rows = rows_under("A chat model of your own")
    told = {cells[0].strip("`"): set(re.findall(r"`(\w+)`", cells[1])) for cells in rows}
    for kind in chat_model.ChatDelta.__args__:
        assert told[kind.__name__] == {field.name for field in dataclasses.fields(kind)}
    assert told["Stop"] == {"reason"}
    for field in dataclasses.fields(chat_model.ChatRequest):
        assert field.name in told
    text = section(PAGE, "A chat model of your own")
    for block, hidden in (
        (TextBlock, set()),
        (ToolUseBlock, {"is_complete"}),
        (ToolResultBlock, {"is_synthetic"}),
    ):
        names = [field.name for field in dataclasses.fields(block) if field.name not in hidden]
        listed = ", ".join(f"`{name}`" for name in names)
        assert f"`{block.__name__}` ({listed})" in " ".join(text.split())
    assert set(chat_model.StopReason) <= set(re.findall(r"`(\w+)`", text))


def test_the_source_of_limits_is_obeyed(tmp_path):
    script = tmp_path / "limits.py"
    script.write_text(block_with("class Contract"), "utf-8")
    run = run_program([sys.executable, str(script)], env={"PYTHONPATH": str(ROOT)})
    assert (run.returncode, run.stdout) == (0, "timed_out\n"), run.stderr


def test_the_page_names_the_levels_in_their_order():
    text = " ".join(section(PAGE, "A source of limits").split())
    levels = ", ".join(
        f"`{field.name}`"
        for field in dataclasses.fields(PolicyLevels)
        if field.type in (ToolLimits, "ToolLimits")
    )
    first, _comma, last = levels.rpartition(", ")
    assert f"{first} and {last}" in text
