"""Summaries tell a person what ran and how it ended, honestly and briefly."""

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from governance import Cancellation, CancelReason, Limit, interrupted_text, not_started_text
from governance.core import outcomes
from turns.chat_models.local import code, summarise
from turns.core.messages import Message, ToolResultBlock, ToolUseBlock

BY_USER = Cancellation(reason=CancelReason.USER)


def returned(content="", *, tool_name="exec", is_error=False, **arguments):
    use = ToolUseBlock(id="", name=tool_name, input=arguments)
    return use, ToolResultBlock(tool_use_id="", content=content, is_error=is_error)


def failed(content, *, tool_name="exec"):
    return returned(content, tool_name=tool_name, is_error=True, command="sleep 60")


def summary_of(*calls):
    uses = tuple(replace(use, id=str(place)) for place, (use, _result) in enumerate(calls))
    results = tuple(
        replace(result, tool_use_id=str(place)) for place, (_use, result) in enumerate(calls)
    )
    return summarise(
        [Message(role="assistant", content=uses), Message(role="user", content=results)]
    )


def test_a_success_quotes_its_output():
    result = returned("a.txt\nb.txt\n", command="ls")

    assert summary_of(result) == "**`ls`** — `exec` succeeded.\n\n```text\na.txt\nb.txt\n```"


def test_a_cancelled_call_says_who_cancelled_it_and_shows_what_there_was():
    content = outcomes.cancelled_text(
        "exec", BY_USER, is_settled=True, side_effects=True, partial="line 1\nline 2"
    )

    summary = summary_of(failed(content))

    assert "`exec` was cancelled by the user." in summary
    assert "may have had an effect" in summary
    assert "```text\nline 1\nline 2\n```" in summary
    assert "Do not call it again" not in summary


def test_a_timeout_names_its_seconds():
    content = outcomes.timeout_text(
        "web_fetch", seconds=0.5, limit=Limit.TOTAL, is_settled=True, side_effects=False, partial=""
    )

    summary = summary_of(failed(content, tool_name="web_fetch"))

    assert "`web_fetch` did not respond within 0.5s." in summary
    assert "_meta" not in summary


def test_an_abandoned_call_is_said_to_run_on_perhaps():
    content = outcomes.cancelled_text(
        "exec", BY_USER, is_settled=False, side_effects=True, partial=""
    )

    assert "may still be running" in summary_of(failed(content))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (not_started_text("exec", BY_USER), "`exec` was not started. It was cancelled by the user."),
        (interrupted_text("exec"), "no result was recorded; it may or may not have run."),
        ("[ERROR] There is no tool named 'x'. Use another.", "There is no tool named 'x'."),
        ("The command ended with exit code 3.\nno such file", "`exec` failed: The command ended with exit code 3."),
    ],
)  # fmt: skip
def test_other_endings(content, said):
    assert said in summary_of(failed(content))


def test_several_calls_are_counted_first():
    good = returned("Waited 2 s.", tool_name="wait", seconds=2.0)

    summary = summary_of(good, failed("It broke."))

    assert summary.startswith("1 of 2 calls succeeded.\n\n**`2 s`** — `wait` succeeded.")


def test_only_a_wait_is_named_by_its_seconds():
    good = returned("It is baked.", tool_name="bake", number=1, seconds=3)

    assert summary_of(good).startswith("`bake` succeeded.")


def test_calls_that_are_alike_are_told_once_with_the_loop_detectors_last_word():
    def result(warning=""):
        return returned(f"now{warning}", command="date")

    summary = summary_of(
        result(), result(), result("\n[LOOP] 3 times."), result("\n[LOOP] 4 times.")
    )

    assert summary.count("`exec` succeeded.") == 1
    assert "(4 times)" in summary
    assert "Loop detector: 4 times." in summary
    assert "[LOOP]" not in summary


def test_long_output_is_cut():
    many = returned("\n".join(f"line {n}" for n in range(1000)))
    wide = returned("x" * 100_000)

    for result in (many, wide):
        summary = summary_of(result)
        assert len(summary) < 1_500
        assert "The card shows the rest." in summary


def test_many_calls_are_cut():
    results = [returned(command=f"echo {n}") for n in range(100)]

    assert "… and 88 more calls: see their cards." in summary_of(*results)


def test_output_cannot_break_out_of_its_fence():
    result = returned("```\n# Title\n```", command="cat `x`")

    html = MarkdownIt().render(summary_of(result))

    assert "<h1>" not in html
    assert "<code>cat `x`</code>" in html


def test_a_reason_is_no_markup():
    html = MarkdownIt().render(summary_of(failed("No file *a* <b> [c](http://d)\n")))

    assert "<em>" not in html
    assert "<a " not in html
    assert "*a*" in html


@pytest.mark.parametrize(
    ("text", "shown"), [("a", "`a`"), ("a`b", "``a`b``"), ("`a`", "`` `a` ``")]
)
def test_code(text, shown):
    assert code(text) == shown


def test_a_denial_names_the_reason_and_leaves_out_the_advice_for_the_model():
    summary = summary_of(failed(outcomes.denied_text("exec", reason="Not today. *Ask* me.\nLater")))

    assert summary.startswith("**`sleep 60`** — `exec` was not run: a person denied this call.")
    assert "The reason given: Not today. \\*Ask\\* me.\nLater" in summary
    assert "find another way" not in summary
    assert "[DENIED]" not in summary
    assert "```" not in summary


def test_a_question_that_expired_is_no_denial():
    summary = summary_of(failed(outcomes.expired_text("exec", seconds=600)))

    assert "`exec` was not run: it needs the approval of a person, and no one answered" in summary
    assert "It was not denied and had no effect." in summary
    assert "[EXPIRED]" not in summary


@pytest.mark.parametrize(
    ("tool_name", "content", "summary"),
    [
        (
            "sessions_ask",
            "**done**\n\n```text\nSunday\n```",
            "answered:\n\n> **done**\n>\n> ```text\n> Sunday\n> ```",
        ),
        (
            "sessions_spawn",
            "Do not wait for it.",
            "is working; its report will appear here.",
        ),
    ],
    ids=["an answer keeps its Markdown as a quotation", "the advice for the model is left out"],
)
def test_what_another_agent_said_is_told(tool_name, content, summary):
    result = returned(content, tool_name=tool_name, agent="researcher", message="run date")
    assert summary_of(result) == f"**`run date`** — `researcher` {summary}"
