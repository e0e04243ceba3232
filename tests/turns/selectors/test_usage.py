"""What turns have used: stored with each step, and summed."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.turns.row_factory import RowFactory
from tests.turns.support import in_database
from turns import selectors
from turns.core.chat_model import StreamLimits, Usage
from turns.models import Agent, Message, Turn
from turns.testing import call, gate, text

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = Usage(
    input_tokens=51_012,
    output_tokens=34,
    cache_read_tokens=50_000,
    cache_write_tokens=1_000,
    reasoning_tokens=7,
    requests=2,
    model="claude-sonnet-5-5-20260901",
)
AGAIN = Usage(input_tokens=8, output_tokens=2, requests=1, model="claude-sonnet-5-5-20260901")


async def test_a_turn_has_the_sum_of_its_steps_and_each_answer_its_own(chat):
    turn = await chat.play([ASKED, call("c1", "quick")], [AGAIN, text("Done.")])

    assert turn.usage == (ASKED + AGAIN).counts
    first, last = await in_database(
        lambda: list(Message.objects.filter(turn=turn, role="assistant").order_by("position"))
    )
    assert first.usage == {**ASKED.counts, "model": ASKED.model}
    assert last.usage == {**AGAIN.counts, "model": AGAIN.model}


async def test_what_a_step_has_cost_is_stored_before_the_turn_is_over(chat):
    """So a crash does not lose it."""
    chat.use_script([ASKED, call("c1", "quick")], [text("And "), gate()])
    turn_id = await chat.say()
    await chat.sink.until("tool_result")

    running = await in_database(lambda: Turn.objects.get(pk=turn_id))

    assert (running.status, running.usage) == ("running", ASKED.counts)
    await chat.cancel(turn_id)
    await chat.ended(turn_id)


async def test_a_token_limit_counts_what_goes_in_and_comes_out_once(chat):
    def limit():
        Agent.objects.filter(is_default=True).update(token_limit=51_047)

    await in_database(limit)
    model = chat.use_script([ASKED, call("c1", "quick")], [AGAIN, text("Done.")])

    await chat.run()

    assert model.requests[1].max_tokens == 1


async def test_the_limits_of_an_answer_are_the_agents_or_the_projects(chat, settings):
    settings.TURNS_CHAT_MODEL_REQUEST_TIMEOUT = 77.0

    def limit():
        Agent.objects.filter(is_default=True).update(
            first_byte_timeout_ms=300_000, idle_timeout_ms=90_500
        )

    await in_database(limit)
    model = chat.use_script([text("Done.")])

    await chat.run()

    assert model.requests[0].limits == StreamLimits(
        first_byte_timeout=300.0, idle_timeout=90.5, request_timeout=77.0
    )


def test_usage_is_summed_by_conversation_user_agent_and_day(ada):
    factory = RowFactory(ada)
    today = timezone.now()
    one = factory.turn("completed", agent="a", usage=ASKED.counts)
    two = factory.turn("completed", agent="b", usage={"input_tokens": 5, "output_tokens": 1})
    old = factory.turn("completed", agent="a", usage=AGAIN.counts)
    Turn.objects.update(queued_at=today)
    Turn.objects.filter(pk=old.pk).update(queued_at=today - timedelta(days=2))
    rest = Usage(input_tokens=5, output_tokens=1)

    assert selectors.usage_of(Turn.objects.all()) == (ASKED + AGAIN + rest).counts
    assert selectors.usage_per("agent") == {"a": (ASKED + AGAIN).counts, "b": rest.counts}
    assert selectors.usage_per("day") == {
        (today - timedelta(days=2)).date(): AGAIN.counts,
        today.date(): (ASKED + rest).counts,
    }
    of_one = Turn.objects.filter(pk__in=[one.pk, two.pk])
    assert selectors.usage_per("user", of_one) == {one.conversation.owner_id: (ASKED + rest).counts}
    assert sum(len(each) for each in selectors.usage_per("conversation").values()) >= len(
        ASKED.counts
    )
    assert selectors.usage_of(Turn.objects.none()) == {}
