"""Families: all that works for one message of a person has one budget, at whatever depth and however often (C10)."""

from functools import partial
from typing import Any

import pytest

from tests.turns.row_factory import RowFactory, make_process
from tests.turns.support import ChatDriver, in_database, row
from tests.turns.threads import at_once
from tests.turns.tools.scripted_agents import ask, child, ended, running, spawn, use_scripts
from turns.core.chat_model import Usage
from turns.models import Agent, Turn
from turns.queueing import turn_tree
from turns.testing import call, text
from turns.tools import children
from turns.tools.children import ChildRefused, Origin

pytestmark = pytest.mark.django_db(transaction=True)


def start(parent: Turn, message: str = "dig") -> Turn:
    """Set a sub-agent to work as a call of this turn does."""
    origin = Origin(turn_id=parent.pk, epoch=parent.epoch, tool_id="a", time_left=None)
    started = children.start(origin, agent="", message=message, is_detached=True)
    return Turn.objects.get(pk=started.turn_id)


def run(turn: Turn) -> Turn:
    Turn.objects.filter(pk=turn.pk).update(status="running", owner=make_process())
    turn.refresh_from_db()
    return turn


@pytest.fixture
def root(ada: Any) -> Turn:
    return RowFactory(ada).turn("running", owner=make_process())


def test_every_depth_belongs_to_the_turn_of_the_person(root):
    son = run(start(root))
    grandson = start(son)
    assert (root.root_id, son.root_id, grandson.root_id) == (None, root.pk, root.pk)


def test_so_many_are_at_work_at_once_at_whatever_depth(root, settings):
    settings.TURNS_MAX_FAMILY = 3
    son, daughter = run(start(root)), run(start(root))
    start(son)
    with pytest.raises(
        ChildRefused, match=r"3 sub-agents are running .* Wait until one"
    ) as refused:
        start(daughter)
    assert "do the work yourself" in refused.value.sentence
    Turn.objects.filter(pk=son.pk).update(status="completed")
    start(daughter)


def test_so_many_are_set_to_work_in_all_also_one_after_the_other(root, settings):
    settings.TURNS_MAX_FAMILY_TOTAL = 3
    for _ in range(3):
        Turn.objects.filter(pk=start(root).pk).update(status="completed")
    with pytest.raises(ChildRefused, match=r"3 sub-agents have been started .* the limit"):
        start(root)


def test_another_message_has_a_budget_of_its_own(root, ada, settings):
    settings.TURNS_MAX_FAMILY_TOTAL = 1
    start(root)
    start(RowFactory(ada).turn("running", owner=make_process()))


def test_those_who_start_at_the_same_time_are_counted_together(root, settings):
    settings.TURNS_MAX_FAMILY = 4
    parents = [run(start(root)) for _ in range(3)]

    def try_it(parent: Turn) -> str:
        try:
            start(parent)
        except ChildRefused:
            return "refused"
        return "started"

    outcomes = at_once(partial(try_it, parent) for parent in parents)
    assert sorted(outcomes) == ["refused", "refused", "started"]


def test_what_is_used_is_counted_over_the_family_and_kept(root):
    son = run(start(root))
    cousin = start(root)
    Turn.objects.filter(pk=root.pk).update(usage={"input_tokens": 7})
    Turn.objects.filter(pk=cousin.pk).update(usage={"input_tokens": 1, "output_tokens": 2})
    used_by_others = turn_tree.share_usage(son, {"output_tokens": 50})
    son.refresh_from_db()
    assert (used_by_others, son.usage) == (10, {"output_tokens": 50})


async def test_a_refused_call_tells_the_model_why_and_the_turn_goes_on(chat: ChatDriver, settings):
    settings.TURNS_MAX_FAMILY_TOTAL = 1
    use_scripts(
        chat,
        go=[[ask("a1", "dig")], [ask("a2", "more")], [text("Enough.")]],
        dig=[[text("Gold.")]],
    )
    turn = await chat.run()
    refused = (await chat.calls(turn.pk))["a2"]
    assert (turn.status, refused.status) == ("completed", "failed")
    assert "1 sub-agents have been started for the user's message" in refused.result


async def test_the_carrier_of_a_report_belongs_to_the_family_it_reports_of(
    chat: ChatDriver, fake_tools
):
    use_scripts(
        chat,
        go=[[spawn("s1", "dig")], [text("It digs.")]],
        dig=[[call("c1", "held")], [text("Gold.")]],
        **{"[SUB-AGENT]": [[text("I see.")]]},
    )
    turn = await chat.run()
    await running("dig")
    fake_tools.open("c1")
    carrier = await chat.sink.until("turn_start", source="sub_agent")
    assert (await row(Turn, pk=carrier["turn_id"])).root_id == turn.pk
    await chat.ended(carrier["turn_id"])


async def test_the_tokens_of_a_sub_agent_count_for_the_agent_that_the_person_speaks_to(
    chat: ChatDriver,
):
    await in_database(lambda: Agent.objects.filter(is_default=True).update(token_limit=100))
    await in_database(lambda: Agent.objects.create(name="digger"))
    agents = use_scripts(
        chat,
        go=[
            [Usage(input_tokens=10, output_tokens=10), ask("a1", "dig", "digger")],
            [text("never asked")],
        ],
        dig=[[Usage(input_tokens=60, output_tokens=20), call("c1", "quick")], [text("never")]],
    )
    turn = await chat.run()
    dug = await ended(await child("dig"))
    assert (dug.status, dug.error_code) == ("failed", "token_limit")
    assert (turn.status, turn.error_code) == ("failed", "token_limit")
    assert "100 tokens that they may use together" in turn.error_message
    assert "100 tokens" in (await chat.calls(turn.pk))["a1"].result
    assert agents.requests["dig"][0].max_tokens == 80
    assert (len(agents.requests["go"]), len(agents.requests["dig"])) == (1, 1)
