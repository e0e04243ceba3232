"""Whatever happened to a history, repair makes it valid, keeps what is real, and is done (H1)."""

from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from governance import CancelReason
from tests.turns.core.histories import HELLO, assistant, call, result, text, user
from turns.core.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock
from turns.core.repairs import CRASH, Cause, RepairKind, repair, violations

IDS = st.sampled_from(["a", "b", "c"])
TURNS = st.sampled_from([None, "t1", "t2"])
CALLS = st.builds(
    ToolUseBlock,
    id=st.sampled_from(["a", "b", "c", ""]),
    name=st.sampled_from(["exec", "exec", "read", ""]),
    is_complete=st.sampled_from([True, True, True, False]),
)
RESULTS = st.builds(
    ToolResultBlock,
    tool_use_id=IDS,
    content=st.sampled_from(["x", "y", "z"]),
    is_synthetic=st.booleans(),
)
TEXTS = st.builds(TextBlock, text=st.sampled_from(["one", "two", " ", ""]))
ANY_MESSAGE = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant"]),
    content=st.lists(CALLS | RESULTS | TEXTS, max_size=5).map(tuple),
    turn_id=TURNS,
    interrupted=st.booleans(),
)
LIKELY_MESSAGE = st.one_of(
    st.builds(assistant, CALLS, CALLS, turn=TURNS),
    st.builds(assistant, TEXTS, CALLS, turn=TURNS),
    st.builds(user, RESULTS, turn=TURNS),
    st.builds(user, RESULTS, RESULTS, TEXTS, turn=TURNS),
    st.builds(user, TEXTS, turn=TURNS),
)
ANY_HISTORY = st.lists(ANY_MESSAGE | LIKELY_MESSAGE, max_size=10)


@st.composite
def valid_histories(draw):
    messages = []
    for turn in range(draw(st.integers(0, 4))):
        messages.append(user(text("go"), turn=f"t{turn}"))
        for ids in draw(st.lists(st.lists(IDS, unique=True, max_size=3), max_size=3)):
            said = draw(st.sampled_from([(text("well"),), ()])) if ids else (text("done"),)
            messages.append(assistant(*said, *(call(id) for id in ids), turn=f"t{turn}"))
            if ids:
                more = draw(st.sampled_from([(text("and"),), ()]))
                results = (result(id, is_synthetic=draw(st.booleans())) for id in ids)
                messages.append(user(*results, *more, turn=draw(TURNS)))
    return messages


def said(messages):
    return [(m.role, block.text) for m in messages for block in m.texts if block.text.strip()]


def sound_calls(messages):
    return [
        list({c.id: c for c in reversed(m.tool_uses) if c.is_answerable})
        for m in messages
        if m.role == "assistant"
    ]


def answers(messages):
    """Return each call with its result, by position, of a valid history."""
    pairs = pairwise(messages)
    return [
        (c, r)
        for step, reply in pairs
        for c, r in zip(step.tool_uses, reply.tool_results, strict=False)
    ]


@given(ANY_HISTORY)
def test_any_history_is_valid_after_repair_and_needs_no_second(history):
    repaired = repair(history)
    assert violations(repaired.messages) == []
    again = repair(repaired.messages)
    assert again.repairs == ()
    assert again.messages == repaired.messages


@given(ANY_HISTORY)
def test_a_change_is_reported_and_only_a_change(history):
    repaired = repair(history)
    assert bool(repaired.repairs) == (repaired.messages != tuple(history))


@given(ANY_HISTORY)
def test_no_text_is_lost_or_reordered(history):
    assert said(repair(history).messages) == said(history)


@given(ANY_HISTORY)
def test_every_whole_call_is_kept_with_exactly_one_result(history):
    messages = repair(history).messages
    kept = [sorted(ids) for ids in sound_calls(messages) if ids]
    assert kept == [sorted(ids) for ids in sound_calls(history) if ids]
    assert len(answers(messages)) == sum(map(len, kept))


@given(ANY_HISTORY)
def test_no_result_is_invented_or_used_twice(history):
    before = Counter(block for message in history for block in message.tool_results)
    repaired = repair(history)
    new = [item.text for item in repaired.repairs if item.kind is RepairKind.MISSING_RESULT]
    after = Counter(block for message in repaired.messages for block in message.tool_results)
    assert sorted(block.content for block in (after - before).elements()) == sorted(new)


@given(ANY_HISTORY)
def test_a_real_result_of_an_unmistakable_call_is_never_replaced_by_a_synthetic_one(history):
    uses = Counter(id for ids in sound_calls(history) for id in ids)
    outcome = {c.id: r for c, r in answers(repair(history).messages)}
    called = set()
    for message in history:
        real = [r for r in message.tool_results if not r.is_synthetic and r.tool_use_id in called]
        assert all(not outcome[r.tool_use_id].is_synthetic for r in real)
        if message.role == "assistant":
            called |= {c.id for c in message.tool_uses if c.is_answerable and uses[c.id] == 1}


@given(valid_histories())
def test_any_valid_history_is_unchanged(history):
    assert violations(history) == []
    repaired = repair(history)
    assert repaired.repairs == ()
    assert all(after is before for after, before in zip(repaired.messages, history, strict=True))


@given(st.permutations("abcdef"), st.lists(st.integers(0, 6), max_size=3), st.booleans())
def test_parallel_results_may_come_in_any_order(order, cuts, has_prompt):
    """No synthetic result beside a real one, whatever the order of completion (acceptance 72b)."""
    step = assistant(*(call(id) for id in "abcdef"))
    edges = [0, *sorted(cuts), 6]
    parts = [
        user(*(result(id) for id in order[start:end]))
        for start, end in pairwise(edges)
        if start < end
    ]
    prompt = [HELLO] if has_prompt else []
    expected = (step, user(*(result(id) for id in "abcdef")), *prompt)
    assert repair([step, *prompt, *parts]).messages == expected
    assert repair([step, *parts, *prompt]).messages == expected


class Journal(RuleBasedStateMachine):
    """A conversation of turns that crash: results in any order, late ones, repeated ids.

    Each result carries its turn's id, and ids are unique in a turn: the right answer is known.
    """

    def __init__(self):
        super().__init__()
        self.messages = []
        self.turn = 0
        self.called = {}
        self.truth = {}
        self.counter = 0

    @property
    def turn_id(self):
        return f"t{self.turn}"

    @rule()
    def begin_turn(self):
        self.turn += 1
        self.messages.append(user(text(f"prompt {self.turn}"), turn=self.turn_id))

    @rule(ids=st.lists(IDS, unique=True, max_size=3), words=st.booleans(), is_cut=st.booleans())
    def answer(self, ids, words, is_cut):
        ids = [id for id in ids if (self.turn_id, id) not in self.called]
        self.called.update({(self.turn_id, id): len(self.called) for id in ids})
        blocks = (
            [text("I call")] * words
            + [call(id) for id in ids]
            + [call("cut", is_complete=False)] * is_cut
        )
        self.messages.append(assistant(*blocks, turn=self.turn_id, interrupted=is_cut))

    @precondition(lambda self: self.called)
    @rule(choice=st.data())
    def record_result(self, choice):
        turn_id, id = choice.draw(st.sampled_from(sorted(self.called)))
        self.counter += 1
        self.truth.setdefault((turn_id, id), f"real {self.counter}")
        self.messages.append(user(result(id, f"real {self.counter}"), turn=turn_id))

    @rule()
    def record_result_of_nothing(self):
        self.messages.append(user(result("nobody"), turn=self.turn_id))

    @rule(cause=st.sampled_from([CRASH, *map(Cause.of, CancelReason)]))
    def crash_and_restart(self, cause):
        self.messages = list(repair(self.messages, cause_of=lambda turn: cause).messages)

    @invariant()
    def every_call_has_its_own_result(self):
        messages = repair(self.messages).messages
        assert violations(messages) == []
        found = {}
        for step, reply in pairwise(messages):
            for c, r in zip(step.tool_uses, reply.tool_results, strict=False):
                found[step.turn_id, c.id] = None if r.is_synthetic else r.content
        assert found == {key: self.truth.get(key) for key in self.called}

    @invariant()
    def every_prefix_can_be_repaired_once(self):
        for length in range(len(self.messages)):
            repaired = repair(self.messages[:length])
            assert violations(repaired.messages) == []
            assert repair(repaired.messages).repairs == ()


Journal.TestCase.settings = settings(max_examples=40, stateful_step_count=20)
TestJournal = Journal.TestCase
