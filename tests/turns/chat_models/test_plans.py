"""Plans: lines become steps, and nothing is done by halves."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turns.chat_models.commands import MAX_CALLS_IN_STEP, CommandProblem, Slowly, parse


def commands(plan):
    return [
        [call.input.get("command", call.tool_name) for call in step.calls] for step in plan[:-1]
    ]


def test_lines_run_side_by_side_and_then_begins_a_step():
    plan = parse("run a\nrun b\n\nthen\nrun c\nThen: run d\nrun e")

    assert commands(plan) == [["a", "b"], ["c"], ["d", "e"]]
    assert plan[-1] == ((), (), 1)


def test_an_indented_line_belongs_to_the_line_above():
    plan = parse("write a.txt:\n  one\n\n    two\nrun for i in 1 2\n  do echo $i\n  done")

    write, run = plan[0].calls
    assert write.input == {"path": "a.txt", "content": "one\n\n  two"}
    assert run.input == {"command": "for i in 1 2\ndo echo $i\ndone"}


def test_an_indented_line_below_then_belongs_to_one_command():
    assert commands(parse("run a\nthen\n  run b\n  c\nrun d")) == [["a"], ["b\nc", "d"]]


def test_tabs_in_a_text_are_kept():
    plan = parse("write Makefile:\n  all:\n  \techo hi")

    assert plan[0].calls[0].input["content"] == "all:\n\techo hi"


def test_an_indented_message_is_read_as_if_it_were_not():
    assert commands(parse("    run a\n    run b")) == [["a", "b"]]


@pytest.mark.parametrize("text", ["  run a\nrun b", "\n\t run a\n\nrun b", "run a\n\u00a0run b"])
def test_no_command_is_left_out_for_its_indentation(text):
    assert commands(parse(text)) == [["a", "b"]]


def test_a_closing_brace_belongs_to_the_line_above():
    plan = parse('call wait {\n"seconds": 1\n}'.replace('\n"', '\n  "'))

    assert plan[0].calls[0].input == {"seconds": 1}


def test_repeated_calls_are_steps_of_their_own():
    assert commands(parse("repeat 3 run a\nrun b\nthen\nrun c")) == [
        ["a", "b"],
        ["a"],
        ["a"],
        ["c"],
    ]


def test_speech_goes_with_the_next_calls_and_what_is_left_closes():
    plan = parse("say one\nthen\nsay two\nrun a\nthen\nslowly three")

    assert [step.texts for step in plan] == [("one", "two"), ("three",)]
    assert isinstance(plan[-1].texts[0], Slowly)


def test_a_repeated_step_says_its_speech_once():
    plan = parse("say hello\nrepeat 2 run a")

    assert [step.texts for step in plan] == [("hello",), (), ()]


@pytest.mark.parametrize(
    "text", ["help", "agents", "history of Rome", "", "  \n ", "then", "runner up"]
)
def test_what_begins_with_no_command_is_no_plan(text):
    assert parse(text) == ()


def test_one_faulty_line_spoils_it_all():
    with pytest.raises(CommandProblem, match="`please make it new` is not a command"):
        parse("run rm -r build\nthen\nplease make it new")


@pytest.mark.parametrize(
    "text",
    [
        "wait 1\n" * (MAX_CALLS_IN_STEP + 1),
        "repeat 150 run a\nthen\nrepeat 150 run b",
        "repeat 200 run a\nthen\n" * 1_000,
    ],
)
def test_a_plan_has_bounds(text):
    with pytest.raises(CommandProblem, match=r"[Aa]t most"):
        parse(text)


@given(
    st.text(max_size=60), st.sampled_from(["", "run ", "call x ", "within 1s ", "write ", "then "])
)
def test_any_text_has_a_plan_or_a_problem(text, head):
    with suppress(CommandProblem):
        plan = parse(head + text)

        assert all(step.calls for step in plan[:-1])
        assert not plan or plan[0].texts or plan[0].calls
