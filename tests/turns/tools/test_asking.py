"""`sessions_ask`: a sub-agent works in a turn of its own, its answer is the result of the call (C10, T10)."""

import asyncio
import threading
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError

from governance import CallStatus, Cancellation, CancelReason, TimeoutSource
from tests.support import eventually, until_touched
from tests.turns.support import ChatDriver, FakeTools, in_database, is_paused, row, run_out_of_time
from tests.turns.tools.scripted_agents import (
    ask,
    child,
    conversation_of,
    ended,
    running,
    spawn,
    use_scripts,
)
from turns import selectors, services
from turns.cancelling.descendants import ask_for_report
from turns.core import runner
from turns.core.exceptions import ChatModelError
from turns.models import Agent, Turn
from turns.running import runtime
from turns.testing import call, failure, gate, text
from turns.tools import sessions
from turns.tools.children import Child


class Answers(list):
    """A reply that is another one each time."""

    def __init__(self, replies):
        self._replies = replies

    def __iter__(self):
        return iter(next(self._replies))


pytestmark = pytest.mark.django_db(transaction=True)


async def an_agent(name: str, **fields):
    return await in_database(lambda: Agent.objects.create(name=name, **fields))


async def test_an_answer_of_a_sub_agent_that_broke_off_is_asked_for_again(
    chat: ChatDriver, monkeypatch
):
    monkeypatch.setattr(runner, "REPEAT_PAUSE", 0.01)
    broken = ChatModelError("chat_model_dropped", "It broke.")
    broken.cut_off = "The connection to the model was lost"
    answers = iter([[text("Lea"), failure(broken)], [text("Gold.")]])
    agents = use_scripts(
        chat, go=[[ask("a1", "dig")], [text("It found gold.")]], dig=[Answers(answers)]
    )
    turn = await chat.run()

    assert (await chat.calls(turn.pk))["a1"].result == "Gold."
    assert len(agents.requests["dig"]) == 2


async def test_the_answer_of_a_sub_agent_is_the_result_of_the_call(chat: ChatDriver):
    await an_agent("researcher", step_limit=7)
    agents = use_scripts(
        chat,
        go=[[ask("a1", "dig", "researcher")], [text("It found gold.")]],
        dig=[[call("c1", "quick")], [text("Gold.")]],
    )
    turn = await chat.run()

    assert turn.status == "completed"
    calls = await chat.calls(turn.pk)
    assert (calls["a1"].status, calls["a1"].result) == ("succeeded", "Gold.")
    assert (calls["a1"].timeout_ms or 0, calls["a1"].timeout_source) == (0, "tool")
    dug = await child("dig")
    assert (dug.parent_id, dug.parent_tool_id, dug.depth, dug.is_detached) == (
        turn.pk,
        "a1",
        1,
        False,
    )
    assert (dug.agent, dug.step_limit, dug.status) == ("researcher", 7, "completed")
    place = await conversation_of(dug)
    assert (place.parent_id, place.owner_id, place.agent) == (chat.id, chat.user.pk, "researcher")
    assert [message.role for message in agents.requests["dig"][0].messages] == ["user"]
    await chat.history()


async def test_a_sub_agent_is_seen_at_work_on_the_card_of_the_call(
    chat: ChatDriver, settings, fake_tools
):
    settings.GOVERNANCE_PROGRESS_INTERVAL = 0.05
    use_scripts(
        chat, go=[[ask("a1", "dig")], [text("Good.")]], dig=[[call("c1", "held")], [text("!")]]
    )
    turn_id = await chat.say()
    await chat.sink.until("tool_progress", tool_id="a1", message="assistant: running held")
    fake_tools.open("c1")

    await chat.ended(turn_id)
    started = await chat.sink.until("sub_agent", tool_id="a1")
    dug = await child("dig")
    assert started["turn_id"] == str(turn_id)
    assert (started["child_turn_id"], started["child_conversation_id"]) == (
        str(dug.pk),
        str(dug.conversation_id),
    )


async def test_several_sub_agents_work_side_by_side(chat: ChatDriver, fake_tools):
    use_scripts(
        chat,
        go=[[ask("a1", "left"), ask("a2", "right")], [text("Both.")]],
        left=[[call("c1", "held", gate="both")], [text("L")]],
        right=[[call("c2", "held", gate="both")], [text("R")]],
    )
    turn_id = await chat.say()
    for message in ("left", "right"):
        await running(message)
    await eventually(lambda: set(fake_tools.started) == {"c1", "c2"})
    fake_tools.open("both")

    await chat.ended(turn_id)
    calls = await chat.calls(turn_id)
    assert [calls[id].result for id in ("a1", "a2")] == ["L", "R"]


async def test_a_database_that_fails_for_a_moment_ends_no_wait(
    chat: ChatDriver, fake_tools, monkeypatch
):
    use_scripts(
        chat, go=[[ask("a1", "dig")], [text("Done.")]], dig=[[call("c1", "held")], [text("G")]]
    )
    turn_id = await chat.say()
    await running("dig")
    read = sessions._read
    failed: list[bool] = []

    async def fails_once(*arguments):
        if not failed:
            failed.append(True)
            raise OperationalError("gone")
        return await read(*arguments)

    monkeypatch.setattr(sessions, "_read", fails_once)
    await eventually(lambda: failed)
    fake_tools.open("c1")
    assert (await chat.ended(turn_id)).status == "completed"
    assert (await chat.calls(turn_id))["a1"].result == "G"


async def test_a_sub_agent_is_not_in_the_list_but_its_owner_may_look_at_it(chat: ChatDriver, eve):
    use_scripts(chat, go=[[ask("a1", "dig")], [text("Good.")]], dig=[[text("Gold.")]])
    await chat.run()
    place = (await child("dig")).conversation_id

    listed = await selectors.list_conversations(user=chat.user)
    assert [summary.id for summary in listed] == [chat.id]
    assert (await selectors.snapshot(conversation_id=place, user=chat.user))["messages"]
    with pytest.raises(Exception, match="no such conversation"):
        await selectors.snapshot(conversation_id=place, user=eve)


async def test_an_unknown_agent_is_refused_with_the_names_of_those_there_are(chat: ChatDriver):
    await an_agent("researcher", description="finds things")
    await an_agent("sleeper", is_enabled=False)
    use_scripts(chat, go=[[ask("a1", "dig", "sleeper")], [text("Well.")]])
    turn = await chat.run()

    result = (await chat.calls(turn.pk))["a1"]
    assert result.status == "failed"
    assert 'no agent named "sleeper"' in result.result
    assert "researcher (finds things)" in result.result
    assert await in_database(Turn.objects.count) == 1


async def test_nesting_has_its_limit(chat: ChatDriver, settings):
    settings.TURNS_MAX_DEPTH = 2
    use_scripts(
        chat,
        go=[[ask("a1", "one")], [text("0")]],
        one=[[ask("a2", "two")], [text("1")]],
        two=[[ask("a3", "three")], [text("2")]],
    )
    assert (await chat.run()).status == "completed"

    two = await child("two")
    assert two.depth == 2
    refused = (await chat.calls(two.pk))["a3"]
    assert (refused.status, "2 levels deep" in refused.result) == ("failed", True)


async def test_a_turn_has_so_many_sub_agents_at_work_at_most(
    chat: ChatDriver, settings, fake_tools
):
    settings.TURNS_MAX_CHILDREN = 1
    use_scripts(
        chat,
        go=[[ask("a1", "left"), ask("a2", "right")], [text("One.")]],
        left=[[call("c1", "held", gate="g")], [text("L")]],
        right=[[call("c2", "held", gate="g")], [text("R")]],
    )
    turn_id = await chat.say()
    refused = await chat.sink.until("tool_result", turn_id=str(turn_id), is_error=True)
    assert "the limit is 1" in refused["result"]
    fake_tools.open("g")
    await chat.ended(turn_id)


async def test_a_sub_agent_gets_no_more_time_than_its_parent_has_left(chat: ChatDriver, settings):
    settings.TURNS_TURN_TIMEOUT = 100
    settings.TURNS_REPORT_GRACE = 10
    await an_agent("hasty", turn_timeout_ms=5_000)
    await an_agent("slow", turn_timeout_ms=500_000)
    use_scripts(
        chat,
        go=[[ask("a1", "quick", "hasty"), ask("a2", "late", "slow")], [text("Done.")]],
        quick=[[text("q")]],
        late=[[text("l")]],
    )
    await chat.run()

    assert (await child("quick")).turn_timeout_ms == 5_000
    assert 80_000 < (await child("late")).turn_timeout_ms <= 90_000


async def test_a_failed_sub_agent_fails_the_call_and_the_turn_goes_on(chat: ChatDriver):
    await an_agent("short", step_limit=1)
    use_scripts(
        chat, go=[[ask("a1", "dig", "short")], [text("So be it.")]], dig=[[call("c1", "quick")]]
    )
    turn = await chat.run()

    result = (await chat.calls(turn.pk))["a1"]
    assert (turn.status, result.status) == ("completed", "failed")
    assert result.result.startswith('[ERROR] The sub-agent "short" failed: ')


async def test_a_sub_agent_out_of_time_reports_what_it_has(chat: ChatDriver):
    agents = use_scripts(
        chat,
        go=[[ask("a1", "dig")], [text("Thanks.")]],
        dig=[[call("c1", "held")]],
        **{"[TIME_IS_UP]": [[text("I got half way.")]]},
    )
    turn_id = await chat.say()
    dug = await running("dig")
    await chat.sink.until("tool_start", tool_id="c1")
    run_out_of_time(dug.pk)
    turn = await chat.ended(turn_id)

    dug = await ended(dug)
    assert (dug.status, dug.ended_by_reason) == ("timed_out", "timeout")
    assert (await chat.calls(dug.pk))["c1"].ended_by_reason == "timeout"
    [asked] = agents.requests["[TIME IS UP]"]
    assert not asked.may_call
    result = (await chat.calls(turn_id))["a1"]
    assert (turn.status, result.status) == ("completed", "failed")
    assert result.result.startswith("[TIMEOUT]")
    assert "I got half way." in result.result


async def test_a_sub_agent_that_was_asked_to_report_does_so_before_its_wakeup(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.TURNS_POLL_INTERVAL = 600.0
    use_scripts(
        chat,
        go=[[ask("a1", "dig")], [text("Thanks.")]],
        dig=[[call("c1", "held")]],
        **{"[TIME_IS_UP]": [[text("I got half way.")]]},
    )
    await chat.say()
    dug = await running("dig")
    await chat.sink.until("tool_start", tool_id="c1")
    out_of_time = Cancellation(reason=CancelReason.TIMEOUT)
    await in_database(lambda: ask_for_report(Turn.objects.filter(pk=dug.pk), out_of_time))
    fake_tools.open("c1")

    assert (await ended(dug)).ended_by_reason == "timeout"


async def test_the_turn_may_be_shorter_than_the_call_and_says_so(chat: ChatDriver):
    use_scripts(chat, go=[[ask("a1", "dig")]], dig=[[gate()]])
    turn_id = await chat.say()
    dug = await running("dig")
    run_out_of_time(turn_id)
    turn = await chat.ended(turn_id)

    assert (turn.status, turn.ended_by_reason) == ("timed_out", "timeout")
    assert "the turn ran out of time" in (await chat.calls(turn_id))["a1"].result
    assert (await ended(dug)).ended_by_reason == "parent"


async def test_a_sub_agent_whose_call_is_out_of_time_reports_and_that_is_delivered(
    chat: ChatDriver,
):
    use_scripts(
        chat,
        go=[[ask("a1", "dig")], [text("On.")]],
        dig=[[call("c1", "held")]],
        **{"[TIME_IS_UP]": [[text("Half way.")]], "[SUB-AGENT]": [[text("I see.")]]},
    )
    turn_id = await chat.say()
    await chat.sink.until("tool_start", tool_id="c1")
    follow_policy(turn_id, timeout=0.001)
    turn = await chat.ended(turn_id)

    result = (await chat.calls(turn_id))["a1"]
    assert (turn.status, result.error_type) == ("completed", "timeout")
    assert "its report will be delivered here" in result.result
    dug = await ended(await child("dig"))
    assert (dug.status, dug.ended_by_reason) == ("timed_out", "timeout")
    started = await chat.sink.until("turn_start", source="sub_agent")
    assert started["reports"][0]["text"] == "Half way."
    await chat.ended(started["turn_id"])


async def test_an_answer_that_is_being_read_when_the_call_is_out_of_time_is_delivered(
    chat: ChatDriver, monkeypatch
):
    is_read = asyncio.Event()

    async def read_for_ever(_child: Child) -> None:
        is_read.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(sessions, "_report", read_for_ever)
    use_scripts(
        chat,
        go=[[ask("a1", "dig")], [text("On.")]],
        dig=[[text("Gold.")]],
        **{"[SUB-AGENT]": [[text("I see.")]]},
    )
    turn_id = await chat.say()
    await eventually(is_read.is_set)
    follow_policy(turn_id, timeout=0.001)
    assert (await chat.ended(turn_id)).status == "completed"

    started = await chat.sink.until("turn_start", source="sub_agent")
    assert started["reports"][0]["text"] == "Gold."
    await chat.ended(started["turn_id"])


async def test_a_sub_agent_at_work_keeps_its_call_alive(chat: ChatDriver, settings, fake_tools):
    settings.GOVERNANCE_PROGRESS_INTERVAL = 0.05
    use_scripts(
        chat, go=[[ask("a1", "dig")], [text("Good.")]], dig=[[call("c1", "held")], [text("G")]]
    )
    turn_id = await chat.say()
    await running_with_idle_limit(chat, turn_id, 60)
    await until_touched(runtime.find_turn(turn_id).find_call("a1"))
    fake_tools.open("c1")

    assert (await chat.ended(turn_id)).status == "completed"
    assert (await chat.calls(turn_id))["a1"].result == "G"


async def test_a_sub_agent_that_shows_no_sign_of_life_is_out_of_time(chat: ChatDriver, settings):
    settings.GOVERNANCE_PROGRESS_INTERVAL = 60
    use_scripts(
        chat,
        go=[[ask("a1", "dig")], [text("On.")]],
        dig=[[call("c1", "held")]],
        **{"[TIME_IS_UP]": [[text("Half way.")]], "[SUB-AGENT]": [[text("I see.")]]},
    )
    turn_id = await chat.say()
    await running_with_idle_limit(chat, turn_id, 0.5)
    assert (await chat.ended(turn_id)).status == "completed"

    result = (await chat.calls(turn_id))["a1"]
    assert (result.status, result.error_type) == ("timed_out", "timeout")
    assert "made no progress" in result.result
    carrier = await chat.sink.until("turn_start", source="sub_agent")
    await chat.ended(carrier["turn_id"])


async def running_with_idle_limit(chat: ChatDriver, turn_id: UUID, seconds: float) -> None:
    """Wait until the sub-agent is at work, then give the call that waits for it an idle limit."""
    await chat.sink.until("tool_start", tool_id="c1")
    follow_policy(turn_id, idle_timeout=seconds)


def follow_policy(turn_id: UUID, **limits: float) -> None:
    """Put other limits in force for the call that waits for a sub-agent."""
    call = runtime.find_turn(turn_id).find_call("a1")
    edited = {"timeout_source": TimeoutSource.OVERRIDE, **limits}
    policy: Any = call.limits.policy
    assert call.limits.follow(replace(policy, **edited))


async def test_giving_up_does_not_wait_for_the_database(chat: ChatDriver):
    """The call ends within its grace and as cancelled, however long the cancel of its sub-agent takes to be stored."""
    use_scripts(chat, go=[[ask("a1", "dig")], [text("On.")]], dig=[[gate()]])
    turn_id = await chat.say()
    dug = await running("dig")
    live = runtime.find_turn(turn_id).find_call("a1")

    def has_ended() -> bool:
        return live.status.is_terminal

    is_free = threading.Event()
    occupying = asyncio.create_task(in_database(is_free.wait))  # the one lane to the database
    try:
        live.cancel(Cancellation(reason=CancelReason.USER))
        await eventually(has_ended)
        assert live.status is CallStatus.CANCELLED
    finally:
        is_free.set()
        await occupying
    assert (await ended(dug)).ended_by_reason == "parent"
    assert (await chat.ended(turn_id)).status == "completed"


async def test_both_clocks_stand_still_while_a_sub_agent_asks_a_person(chat: ChatDriver, settings):
    settings.GOVERNANCE_APPROVAL = {}
    settings.GOVERNANCE_PROGRESS_INTERVAL = 0.05
    use_scripts(
        chat,
        go=[[ask("a1", "middle")], [text("Good.")]],
        middle=[[ask("a2", "leaf")], [text("m")]],
        leaf=[[call("c1", "asked")], [text("l")]],
    )
    turn_id = await chat.say()
    leaf = await running("leaf")
    await chat.asked(leaf.pk, "c1")
    clocks = [
        runtime.find_turn(pk).runner.clock for pk in (turn_id, (await child("middle")).pk, leaf.pk)
    ]

    def all_stand_still() -> bool:
        return all(is_paused(clock) for clock in clocks)

    await eventually(all_stand_still)
    await chat.sink.until(
        "tool_progress", tool_id="a2", message="assistant: waiting for your approval of asked"
    )

    await chat.decide(leaf.pk, "c1")
    assert (await chat.ended(turn_id)).status == "completed"
    assert not any(is_paused(clock) for clock in clocks)


async def test_a_conversation_takes_its_sub_agents_with_it(chat: ChatDriver):
    use_scripts(chat, go=[[ask("a1", "dig")], [text("Good.")]], dig=[[text("Gold.")]])
    turn = await chat.run()
    conversation = await conversation_of(turn)

    await in_database(conversation.delete)
    assert await in_database(Turn.objects.count) == 0


async def test_a_person_cannot_write_where_a_sub_agent_works(chat: ChatDriver):
    use_scripts(chat, go=[[ask("a1", "dig")], [text("Good.")]], dig=[[text("Gold.")]])
    await chat.run()
    there = ChatDriver(
        user=chat.user,
        conversation_id=(await child("dig")).conversation_id,
        sink=chat.sink,
    )

    with pytest.raises(Exception, match="sub-agent"):
        await there.say("and more")


async def test_text_of_a_sub_agent_is_a_sign_of_life(chat: ChatDriver, settings):
    settings.GOVERNANCE_PROGRESS_INTERVAL = 0.05
    opening = asyncio.Event()
    use_scripts(
        chat,
        go=[[ask("a1", "tell")], [text("Good.")]],
        tell=[[text("Once "), gate(opening), text("upon")]],
    )
    turn_id = await chat.say()
    await chat.sink.until("tool_progress", tool_id="a1", message="assistant: writing")
    opening.set()
    await chat.ended(turn_id)
    assert (await row(Turn, pk=turn_id)).status == "completed"


async def test_it_works_in_a_directory_within_that_of_its_parent(chat: ChatDriver, tmp_path):
    use_scripts(
        chat,
        go=[[ask("a1", "dig")], [text("Good.")]],
        dig=[[call("c1", "write_file", path="gold.txt", content="Gold.")], [text("Written.")]],
    )
    await chat.run()
    place = (await child("dig")).conversation_id

    written = tmp_path / str(chat.id) / "sub-agents" / place.hex[:12] / "gold.txt"
    assert written.read_text() == "Gold."


async def test_a_sub_agent_is_bound_by_the_approval_of_whom_it_works_for(
    chat: ChatDriver, settings
):
    settings.GOVERNANCE_APPROVAL = {}
    await an_agent("careful", approval="always", tools=["sessions_ask"])
    await an_agent("free")
    careful = await services.create_conversation(user=chat.user, agent="careful")
    chat = ChatDriver(user=chat.user, conversation_id=careful.id, sink=chat.sink)
    use_scripts(
        chat,
        go=[[ask("a1", "dig", "free")], [text("Good.")]],
        dig=[[call("c1", "quick")], [text("Gold.")]],
    )
    turn_id = await chat.say()
    await chat.asked(turn_id, "a1")
    await chat.decide(turn_id, "a1")
    dug = await running("dig")
    await chat.asked(dug.pk, "c1")
    await chat.decide(dug.pk, "c1")

    assert (await chat.ended(turn_id)).status == "completed"


async def test_an_agent_is_told_who_can_work_for_it(chat: ChatDriver):
    await an_agent("researcher", description="Finds things.")
    agents = use_scripts(chat, go=[[text("Fine.")]])
    await chat.run()

    [request] = agents.requests["go"]
    assert request.instructions.endswith("- researcher: Finds things.")


async def test_the_status_of_the_session_lists_its_sub_agents(chat: ChatDriver):
    use_scripts(
        chat,
        go=[[spawn("s1", "dig")], [call("c1", "session_status")], [text("So.")]],
        dig=[[gate()]],
    )
    turn = await chat.run()
    dug = await running("dig")

    status = (await chat.calls(turn.pk))["c1"].result
    assert "Sub-agents: 1." in status
    assert f"- assistant (session {dug.pk}): " in status
    await chat.cancel(dug.pk)


async def test_an_agent_may_end_what_it_has_set_to_work(chat: ChatDriver, eve):
    agents = use_scripts(
        chat,
        go=[[spawn("s1", "dig")], [text("It digs.")]],
        dig=[[gate()]],
        end=[[text("no")]],
    )
    await chat.run()
    dug = await running("dig")
    await eventually(lambda: agents.requests["dig"])  # before another cast takes its place
    other = await services.create_conversation(user=eve)
    there = ChatDriver(user=eve, conversation_id=other.id, sink=chat.sink)
    use_scripts(chat, steal=[[call("c1", "sessions_cancel", session=str(dug.pk))], [text("Hm.")]])
    refused = await there.run("steal")
    assert "no running session" in (await there.calls(refused.pk))["c1"].result

    use_scripts(chat, end=[[call("c2", "sessions_cancel", session=str(dug.pk))], [text("Ended.")]])
    turn = await chat.run("end")
    dug = await ended(dug)
    assert (dug.status, dug.ended_by_reason) == ("cancelled", "parent")
    assert "being stopped. Sub-agents affected: 1." in (await chat.calls(turn.pk))["c2"].result
    assert dug.delivered_at is not None
