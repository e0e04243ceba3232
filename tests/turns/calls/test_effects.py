"""Whether a call may have had an effect: stored with it, and told alike to the agent, to people and to clients."""

from collections.abc import Iterator

import pytest

from governance import make_tool, registry
from governance.models import ToolCall
from tests.turns.row_factory import RowFactory
from tests.turns.support import ChatDriver, FakeTools
from turns import selectors
from turns.core.turns import TurnEnding, TurnStatus
from turns.endings.turn_endings import end_turn
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def refund(fake_tools: FakeTools) -> Iterator[None]:
    """A tool with side effects that waits in the middle of them."""
    registry.register(make_tool(fake_tools.held, name="refund", side_effects=True))
    yield
    registry.unregister("refund")


@pytest.mark.parametrize(
    ("tool_name", "how", "effects"),
    [
        ("refund", "ends", "possible"),
        ("refund", "cancelled", "cut"),
        ("refund", "timed out", "cut"),
        ("held", "ends", "none"),
        ("held", "cancelled", "none"),
        ("stubborn", "cancelled", "cut"),  # with side effects, and not known to have ended
        ("blocked", "cancelled", "possible"),  # without them, and not known to have ended
    ],
)
async def test_a_call_says_whether_it_may_have_had_an_effect(
    chat: ChatDriver, fake_tools: FakeTools, refund: None, settings, tool_name, how, effects
):
    settings.GOVERNANCE_CANCEL_GRACE = 0.05
    limit = {"_meta": {"timeout_ms": 50}} if how == "timed out" else {}
    model = chat.use_script([call("a", tool_name, **limit)], [text("Fine.")], [text("Yes.")])
    turn_id = await chat.say()
    if how != "timed out":
        await chat.running(turn_id, "a")
    if how == "cancelled":
        await chat.cancel(turn_id)
    elif how == "ends":
        fake_tools.open("a")
    await chat.ended(turn_id)
    made = (await chat.calls(turn_id))["a"]
    assert made.effects == effects
    assert chat.sink.find("tool_result", tool_id="a")["effects"] == effects
    shown = await selectors.get_turn(turn_id=turn_id, user=chat.user)
    assert [it["effects"] for it in shown["calls"]] == [effects]
    warns = "may have had an effect" in made.result or "may have been applied" in made.result
    assert warns == (how != "ends" and effects != "none")
    fake_tools.open_all()
    await chat.run("and?")
    prompt = str(model.requests[-1].messages)
    assert ("check before repeating" in prompt) == (how == "cancelled" and effects != "none")


async def test_a_call_that_never_began_had_none(
    chat: ChatDriver, fake_tools: FakeTools, refund: None
):
    turn_id = await chat.begin([call("a", "alone"), call("b", "refund")], [text("Fine.")])
    await chat.cancel(turn_id)
    await chat.ended(turn_id)
    assert (await chat.calls(turn_id))["b"].effects == "none"


def test_a_call_whose_process_was_lost_was_cut_if_its_tool_has_side_effects(ada):
    factory = RowFactory(ada)
    turn = factory.turn("running", epoch=1)
    factory.call(turn, "a", "running", effects="possible")
    factory.call(turn, "b", "running", effects="none")
    factory.call(turn, "c", "pending")
    end_turn(turn.pk, TurnEnding(status=TurnStatus.INTERRUPTED), epoch=1)
    effects = ToolCall.objects.values_list("call_id", "effects")
    assert dict(effects) == {"a": "cut", "b": "possible", "c": "none"}
