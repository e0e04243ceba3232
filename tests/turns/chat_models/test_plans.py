"""Plans: lines become steps, and nothing is done by halves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turns.chat_models.plans import MAX_CALLS_IN_STEP, Intent, parse


def commands(plan):
    return [
        [call.input.get("command", call.tool_name) for call in step.calls] for step in plan.steps
    ]


def spoken(speeches):
    return [speech.text for speech in speeches]


def test_lines_run_side_by_side_and_then_begins_a_step():
    plan = parse("run a\nrun b\n\nthen\nrun c\nThen: run d\nrun e")

    assert plan.intent is Intent.RUN
    assert commands(plan) == [["a", "b"], ["c"], ["d", "e"]]
    assert plan.closing == ()


def test_an_indented_line_belongs_to_the_line_above():
    plan = parse("write a.txt:\n  one\n\n    two\nrun for i in 1 2\n  do echo $i\n  done")

    write, run = plan.steps[0].calls
    assert write.input == {"path": "a.txt", "content": "one\n\n  two"}
    assert run.input == {"command": "for i in 1 2\ndo echo $i\ndone"}


def test_tabs_in_a_text_are_kept():
    plan = parse("write Makefile:\n  all:\n  \techo hi")

    assert plan.steps[0].calls[0].input["content"] == "all:\n\techo hi"


def test_an_indented_message_is_read_as_if_it_were_not():
    assert commands(parse("    run a\n    run b")) == [["a", "b"]]


@pytest.mark.parametrize("text", ["  run a\nrun b", "\n\t run a\n\nrun b", "run a\n\u00a0run b"])
def test_no_command_is_left_out_for_its_indentation(text):
    assert commands(parse(text)) == [["a", "b"]]


def test_a_closing_brace_belongs_to_the_line_above():
    plan = parse('call wait {\n"seconds": 1\n}'.replace('\n"', '\n  "'))

    assert plan.steps[0].calls[0].input == {"seconds": 1}


def test_repeated_calls_are_steps_of_their_own():
    assert commands(parse("repeat 3 run a\nrun b\nthen\nrun c")) == [
        ["a", "b"],
        ["a"],
        ["a"],
        ["c"],
    ]


def test_speech_goes_with_the_next_calls_and_what_is_left_closes():
    plan = parse("say one\nthen\nsay two\nrun a\nthen\nslowly three")

    assert [spoken(step.speeches) for step in plan.steps] == [["one", "two"]]
    assert spoken(plan.closing) == ["three"]
    assert plan.closing[0].is_slow


def test_a_repeated_step_says_its_speech_once():
    plan = parse("say hello\nrepeat 2 run a")

    assert [spoken(step.speeches) for step in plan.steps] == [["hello"], []]


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("help", Intent.HELP),
        ("Help!", Intent.HELP),
        ("?", Intent.HELP),
        ("What can you do?", Intent.HELP),
        ("agents", Intent.AGENTS),
        ("List the agents!", Intent.AGENTS),
        ("hello", Intent.GREETING),
        ("Good morning, Turnkeeper!", Intent.GREETING),
        ("thanks a lot", Intent.THANKS),
        ("What is the weather like?", Intent.UNKNOWN),
        ("history of Rome", Intent.UNKNOWN),
        ("", Intent.UNKNOWN),
        ("  \n ", Intent.UNKNOWN),
        ("then", Intent.UNKNOWN),
        ("runner up", Intent.UNKNOWN),
    ],
)
def test_intents(text, intent):
    plan = parse(text)

    assert plan.intent is intent
    assert (plan.steps, plan.closing, plan.problem) == ((), (), "")


def test_one_faulty_line_spoils_it_all():
    plan = parse("run rm -r build\nthen\nplease make it new")

    assert plan.steps == ()
    assert "`please make it new` is not a command" in plan.problem


@pytest.mark.parametrize(
    "text",
    [
        "wait 1\n" * (MAX_CALLS_IN_STEP + 1),
        "repeat 150 run a\nthen\nrepeat 150 run b",
        "repeat 200 run a\nthen\n" * 1_000,
    ],
)
def test_a_plan_has_bounds(text):
    plan = parse(text)

    assert plan.steps == ()
    assert "At most" in plan.problem


@given(
    st.text(max_size=60), st.sampled_from(["", "run ", "call x ", "within 1s ", "write ", "then "])
)
def test_any_text_has_a_plan(text, head):
    plan = parse(head + text)

    assert plan == parse(head + text)
    assert all(step.calls for step in plan.steps)
    if plan.intent is Intent.RUN:
        assert plan.steps or plan.closing or plan.problem
