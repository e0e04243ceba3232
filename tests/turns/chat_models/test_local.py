"""The `local` model carries out a plan over the history, keeps no state, and streams as providers do."""

import asyncio
import json
from dataclasses import replace
from itertools import pairwise

import pytest

from governance import Cancellation, CancelReason, Isolation, ToolExecutor, ToolRegistry, toolbox
from governance.core import outcomes
from governance.core.invokers.thread import ThreadInvoker
from governance.toolbox import ToolboxSettings
from tests.support import NoApprovals
from tests.turns.core.runner_harness import BY_USER, RunnerHarness
from tests.turns.journals import RecordingJournal
from turns.chat_models.local import LocalChatModel, compose
from turns.core.chat_model import (
    ChatRequest,
    Reply,
    Stop,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolSpec,
    Usage,
    message_of,
)
from turns.core.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock
from turns.core.repairs import Cause, interruption_note, repair
from turns.core.turns import TurnStatus


def said(text, *, role="user"):
    return Message(role=role, content=(TextBlock(text=text),))


def request_for(*messages, instructions="", tools=()):
    history = tuple(said(each) if isinstance(each, str) else each for each in messages)
    return ChatRequest(instructions=instructions, messages=history, tools=tools)


async def deltas_of(request, **options):
    return [delta async for delta in LocalChatModel(**options).stream(request)]


async def reply_to(request):
    reply = Reply()
    for delta in await deltas_of(request):
        reply.take(delta)
    return reply


async def use_script(text, answer):
    """Carry a message out, with `answer(call)` for each result; return the history, the last answer included."""
    messages = [said(text)]
    for _ in range(20):
        reply = await reply_to(request_for(*messages))
        calls = reply.calls(scope="")
        messages.append(message_of(reply.text, calls, turn_id="t"))
        if not calls:
            return messages
        messages.append(Message(role="user", content=tuple(answer(call) for call in calls)))
    raise AssertionError("the plan has no end")


def result(call, content="ok", *, is_error=False):
    return ToolResultBlock(tool_use_id=call.id, content=content, is_error=is_error)


class TestPlan:
    async def test_each_request_gets_the_next_step_and_the_last_one_a_summary(self):
        messages = await use_script("run a\nrun b\nthen\nwait 1", result)

        asked = [[use.name for use in message.tool_uses] for message in messages]
        assert asked == [[], ["exec", "exec"], [], ["wait"], [], []]
        assert messages[1].texts[0].text == "Step 1 of 2: calling 2 tools…"
        assert messages[3].texts[0].text == "Step 2 of 2: calling `wait`…"
        assert messages[-1].texts[0].text.startswith("3 of 3 calls succeeded.")

    @pytest.mark.parametrize(
        ("message", "answer"),
        [
            ("run ls", "Calling `exec`…"),  # one step has no number
            ("say Off we go\nrun ls", "Off we go"),
            ("say Hello, Ada.", "Hello, Ada."),
            ("Thank you!", "You are welcome."),
        ],
    )
    async def test_a_message_is_answered_or_its_step_announced(self, message, answer):
        assert (await reply_to(request_for(message))).text == answer

    async def test_speech_after_calls_follows_the_summary(self):
        messages = await use_script("run ls\nthen\nsay That was it.", result)

        assert messages[-1].texts[0].text.endswith("\n\nThat was it.")
        assert "`exec` succeeded." in messages[-1].texts[0].text

    async def test_ids_are_unique_in_a_turn(self):
        messages = await use_script("repeat 3 run a\nrun b", result)

        ids = [use.id for message in messages for use in message.tool_uses]
        assert ids == ["call_1_1", "call_1_2", "call_2_1", "call_3_1"]

    async def test_the_limit_of_within_is_sent_with_the_call(self):
        (call,) = (await reply_to(request_for("within 5s run sleep 60"))).calls(scope="")

        assert call.input == {"command": "sleep 60", "_meta": {"timeout_ms": 5000}}


class TestHistories:
    async def test_after_a_timeout_the_plan_goes_on_and_the_summary_tells_of_it(self):
        def answer(call):
            if call.input.get("command") != "slow":
                return result(call)
            content = outcomes.timeout_text(
                "exec",
                seconds=5,
                limit="total",
                is_settled=True,
                side_effects=True,
                partial="half",
            )
            return result(call, content, is_error=True)

        messages = await use_script("run slow\nthen\nrun quick", answer)

        answer_text = messages[-1].texts[0].text
        assert answer_text.startswith("1 of 2 calls succeeded.")
        assert "`exec` did not respond within 5s." in answer_text
        assert "half" in answer_text

    async def test_a_cancelled_call_is_reported_honestly(self):
        def answer(call):
            content = outcomes.cancelled_text(
                "exec",
                Cancellation(reason=CancelReason.USER),
                is_settled=True,
                side_effects=False,
                partial="",
            )
            return result(call, content, is_error=True)

        messages = await use_script("run sleep 60", answer)

        assert "`exec` was cancelled by the user." in messages[-1].texts[0].text

    async def test_a_new_message_begins_anew_whatever_was_left_open(self):
        cut_off = Message(
            role="assistant", content=(ToolUseBlock(id="call_1_1", name="exec"),), turn_id="t1"
        )
        history = [
            said("run a\nthen\nrun b"),
            cut_off,
            said("Half an ans", role="assistant"),
            said("run c"),
        ]
        repaired = repair(history)

        (call,) = (await reply_to(request_for(*repaired.messages))).calls(scope="")

        assert call.input == {"command": "c"}

    async def test_results_merged_with_the_next_message_are_not_its_answer(self):
        use = ToolUseBlock(id="call_1_1", name="exec", input={"command": "a"})
        merged = Message(role="user", content=(result(use), TextBlock(text="run b")))
        history = [said("run a"), Message(role="assistant", content=(use,)), merged]

        (call,) = (await reply_to(request_for(*history))).calls(scope="")

        assert call.input == {"command": "b"}

    async def test_the_same_request_has_the_same_answer(self):
        model = LocalChatModel()
        messages = await use_script("run a\nrun b\nthen\nwait 1", result)
        for length in (1, 3, 5):
            request = request_for(*messages[:length])
            first = [delta async for delta in model.stream(request)]
            again = [delta async for delta in model.stream(request)]
            other = await deltas_of(request)

            assert first == again == other

    async def test_no_message_at_all_is_answered(self):
        assert (await reply_to(request_for())).text


class TestTalk:
    async def test_help_shows_every_command_and_the_tools(self):
        tools = (ToolSpec(name="exec", description="", input_schema={}),)

        text = (await reply_to(request_for("help", tools=tools))).text

        for word in [
            "run",
            "read",
            "list",
            "write",
            "edit",
            "fetch",
            "wait",
            "agents",
            "status",
            "say",
            "slowly",
            "think",
            "call",
            "within",
            "repeat",
            "then",
        ]:
            assert f"`{word}" in text or f"\n{word}\n" in text
        assert "The tools here: `exec`." in text

    @pytest.mark.parametrize(
        ("message", "answer"),
        [
            ("Help!", "I understand these commands"),
            ("?", "I understand these commands"),
            ("What can you do?", "I understand these commands"),
            ("agents", "There are no other agents here"),
            ("List the agents!", "There are no other agents here"),
            ("hello", "Hello! I am the built-in `local` model"),
            ("Good morning, Turnkeeper!", "Hello! I am the built-in `local` model"),
            ("thanks a lot", "You are welcome."),
            ("What is the weather like?", "I do not understand free text"),
            ("history of Rome", "I do not understand free text"),
        ],
    )
    async def test_talk_is_understood_a_little(self, message, answer):
        assert answer in (await reply_to(request_for(message))).text

    async def test_the_agents_are_those_of_the_instructions(self):
        instructions = "Be kind.\n- Always.\n\nOther agents can work for you (ask):\n- a_b: Reads *all*\n- c\n\nBye"

        text = (await reply_to(request_for("agents", instructions=instructions))).text

        assert text.endswith("a name and a task.\n\n- `a_b`: Reads \\*all\\*\n- `c`")

    @pytest.mark.parametrize("message", ["What is the capital of France?", "hello"])
    async def test_free_text_is_answered_with_what_it_understands(self, message):
        text = (await reply_to(request_for(message))).text

        assert "`help`" in text
        assert "`run " in text

    async def test_a_faulty_line_is_named_and_nothing_is_run(self):
        reply = await reply_to(request_for("run ls\nwait a moment"))

        assert not reply.has_calls
        assert "`wait` needs a number of seconds" in reply.text
        assert "Nothing was run." in reply.text

    async def test_the_note_on_an_interrupted_turn_is_passed_on(self):
        note = interruption_note(
            Cause.of(CancelReason.USER), indeterminate=[ToolUseBlock(id="call_1_1", name="exec")]
        )

        message = Message(role="user", content=(TextBlock(text=note), TextBlock(text="so?")))
        text = (await reply_to(request_for(message))).text

        assert text.startswith("By the way: the previous turn did not reach its end: the user")
        assert "check before repeating: exec (call_1_1)" in text

    async def test_without_a_note_there_is_nothing_by_the_way(self):
        text = (await reply_to(request_for("so?", instructions="Be kind."))).text

        assert "By the way" not in text


class TestStream:
    async def test_arguments_come_in_pieces_that_make_valid_json(self):
        content = 'a "quoted" text, ünïcode and\nlines ' * 20
        request = request_for("call write_file " + json.dumps({"path": "a", "content": content}))

        deltas = [d for d in await deltas_of(request) if isinstance(d, ToolCallDelta)]

        assert deltas[0] == ToolCallDelta(index=0, id="call_1_1", name="write_file")
        assert len(deltas) > 10
        reply = Reply()
        for delta in deltas:
            reply.take(delta)
        (call,) = reply.calls(scope="")
        assert call.problem == ""
        assert call.input == {"path": "a", "content": content}

    async def test_text_comes_in_small_pieces_before_the_calls(self):
        deltas = await deltas_of(request_for("say " + "word " * 30 + "\nrun ls"))

        kinds = [type(delta) for delta in deltas]
        assert kinds.index(ToolCallDelta) > 5
        assert all(b is not TextDelta for a, b in pairwise(kinds) if a is ToolCallDelta)
        assert max(len(d.text) for d in deltas if isinstance(d, TextDelta)) <= 24

    async def test_usage_comes_last_and_grows_with_the_history(self):
        short = await deltas_of(request_for("hello"))
        long = await deltas_of(request_for("x" * 4_000, "hello"))

        assert isinstance(short[-1], Usage)
        assert long[-1].input_tokens >= short[-1].input_tokens + 1_000
        assert long[-1].output_tokens == short[-1].output_tokens > 0

    async def test_it_says_no_more_than_it_may(self):
        asked = replace(request_for("say " + "word " * 100), max_tokens=20)

        said = await deltas_of(asked)

        assert said[-1] == Stop(StopReason.LENGTH)
        assert said[-2].output_tokens in range(20, 30)

    async def test_slowly_pauses_before_each_word(self):
        pauses = []

        async def pause(seconds):
            pauses.append(seconds)

        deltas = await deltas_of(request_for("slowly one two three"), sleep=pause)

        assert [d.text for d in deltas if isinstance(d, TextDelta)] == ["one ", "two ", "three"]
        assert pauses == [0.08] * 3

    async def test_thoughts_come_first_and_word_by_word(self):
        pauses = []

        async def pause(seconds):
            pauses.append(seconds)

        deltas = await deltas_of(request_for("say Yes.\nthink one two"), sleep=pause)

        assert deltas[:3] == [ThinkingDelta("one "), ThinkingDelta("two"), TextDelta("Yes.")]
        assert pauses == [0.08] * 2

    async def test_nothing_else_pauses(self):
        async def pause(seconds):
            raise AssertionError("a pause")

        await deltas_of(request_for("run ls\nsay hello"), sleep=pause)

    async def test_composing_changes_nothing(self):
        request = request_for("run a")

        assert compose(request) == compose(replace(request))


class TestWithTools:
    """The whole way: real runner, real executor, the built-in tools."""

    @pytest.fixture
    async def harness(self, tmp_path):
        harness = RunnerHarness()
        await harness.executor.aclose()
        harness.registry = ToolRegistry()
        toolbox.register(harness.registry, settings=lambda: ToolboxSettings(exec_enabled=True))
        harness.executor = ToolExecutor(
            registry=harness.registry,
            policies=NoApprovals(),
            invokers={Isolation.THREAD: ThreadInvoker(max_threads=4, max_abandoned=4)},
        )
        yield harness
        await harness.close()

    async def test_files_are_written_edited_and_read(self, harness, tmp_path):
        harness.journal = RecordingJournal(
            "write a.txt: Buy milk\nthen\nedit a.txt: milk => bread\nthen\nread a.txt\nrun cat a.txt"
        )
        task, _model = harness.start(model=LocalChatModel(), workspace=tmp_path)

        ending = await task

        assert ending.status is TurnStatus.COMPLETED
        assert (tmp_path / "a.txt").read_text() == "Buy bread"
        answer = harness.journal.history[-1].texts[0].text
        assert answer.startswith("4 of 4 calls succeeded.")
        assert answer.count("Buy bread") >= 2
        harness.assert_valid_history()

    async def test_a_limit_of_its_own_ends_a_command(self, harness, tmp_path):
        harness.journal = RecordingJournal("within 100ms run echo begun; sleep 60")
        task, _model = harness.start(model=LocalChatModel(), workspace=tmp_path)

        ending = await task

        assert ending.status is TurnStatus.COMPLETED
        answer = harness.journal.history[-1].texts[0].text
        assert "`exec` did not respond within 0.1s." in answer
        harness.assert_valid_history()

    async def test_slow_speech_can_be_cancelled_in_the_middle(self, harness):
        spoken = 0
        third = asyncio.Event()

        async def pause(_seconds):
            nonlocal spoken
            spoken += 1
            if spoken == 3:
                third.set()
                await asyncio.Event().wait()

        harness.journal = RecordingJournal("slowly one two three four")
        task, _model = harness.start(model=LocalChatModel(sleep=pause))
        await third.wait()

        harness.token.cancel(BY_USER)
        ending = await task

        assert ending.status is TurnStatus.CANCELLED
        assert harness.journal.replies[0].message.texts[0].text == "one two "
        assert harness.journal.replies[0].interrupted
