"""What the model reads says what happened, who caused it and what to do next (A1, protocol)."""

import pytest

from governance.core import outcomes
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation
from governance.core.deadline import Limit


def timeout_text(**facts):
    defaults = {
        "seconds": 5.0,
        "limit": Limit.TOTAL,
        "is_settled": True,
        "side_effects": False,
        "partial": "",
    }
    return outcomes.timeout_text("fetch", **{**defaults, **facts})


def cancelled_text(reason=CancelReason.USER, **facts):
    defaults = {"is_settled": True, "side_effects": False, "partial": ""}
    return outcomes.cancelled_text("fetch", Cancellation(reason=reason), **{**defaults, **facts})


class TestTimeout:
    @pytest.mark.parametrize(
        ("seconds", "words"), [(5.0, "5s"), (0.25, "0.25s"), (3600.0, "3600s")]
    )
    def test_starts_with_the_tool_and_the_seconds(self, seconds, words):
        expected = f'[TIMEOUT] Tool "fetch" did not respond within {words}.'

        assert timeout_text(seconds=seconds).startswith(expected)

    def test_says_what_to_try_next(self):
        assert "_meta.timeout_ms" in timeout_text()

    def test_of_a_silent_tool_says_so(self):
        assert "made no progress" in timeout_text(limit=Limit.IDLE)
        assert "_meta.timeout_ms" not in timeout_text(limit=Limit.IDLE)  # that moves the other one
        assert "made no progress" not in timeout_text()

    def test_of_a_capped_call_says_so_and_does_not_advise_to_ask_for_more(self):
        text = timeout_text(capped_from=7200.0)

        assert "requested 7200s" in text
        assert "_meta.timeout_ms" not in text

    def test_of_a_call_that_wanted_no_limit_says_so(self):
        assert "requested no limit" in timeout_text(capped_from=0.0)


@pytest.mark.parametrize("text_of", [timeout_text, cancelled_text])
class TestFate:
    def test_of_a_body_that_did_not_end_is_open(self, text_of):
        assert "may still be running and may have been applied" in text_of(is_settled=False)

    def test_of_a_body_that_ended_is_known(self, text_of):
        text = text_of(is_settled=True)

        assert "It has ended." in text
        assert "may" not in text.replace("may be", "")

    def test_of_a_tool_with_side_effects_warns(self, text_of):
        assert "may have had an effect" in text_of(side_effects=True)

    def test_is_followed_by_what_was_put_out(self, text_of):
        assert text_of(partial="line 1\nline 2").endswith(":\nline 1\nline 2")


@pytest.mark.parametrize(
    ("reason", "who"),
    [
        ("user", "the user"),
        ("admin", "an administrator"),
        ("parent", "the parent turn"),
        ("disconnect", "nobody was connected"),
        ("timeout", "the turn ran out of time"),
        ("loop", "automatically"),
        ("superseded", "automatically"),
        ("shutdown", "shutting down"),
        ("error", "after an error"),
    ],
)
def test_a_cancelled_call_says_who_did_it(reason, who):
    cancellation = Cancellation(reason=CancelReason(reason))

    assert who in cancelled_text(CancelReason(reason))
    assert who in outcomes.not_started_text("fetch", cancellation)


def test_every_reason_has_its_words():
    for reason in CancelReason:
        assert cancelled_text(reason).startswith('[CANCELLED] Tool "fetch" was cancelled by ')


@pytest.mark.parametrize("reason", ["loop", "superseded", "shutdown", "timeout", "disconnect"])
def test_what_a_machine_did_is_not_blamed_on_the_user(reason):
    assert "the user" not in cancelled_text(CancelReason(reason))


def test_a_call_that_never_started_says_so():
    text = outcomes.not_started_text("fetch", None)

    assert text == '[CANCELLED] Tool "fetch" was not started. It had no effect.'


def test_a_call_that_was_given_up_may_have_had_an_effect():
    text = outcomes.abandoned_text("fetch", Cancellation(reason=CancelReason.SHUTDOWN))

    assert text.startswith('[CANCELLED] Tool "fetch" was cancelled by the server')
    assert "may still be running" in text


def test_a_repaired_call_may_or_may_not_have_run():
    text = outcomes.interrupted_text("fetch")

    assert text.startswith("[INTERRUPTED] ")
    assert "may or may not have run" in text


def test_a_failed_call_names_the_kind_of_error():
    text = outcomes.failed_text("fetch", "ValueError", code="execution_error", partial="so far")

    assert text.startswith('[ERROR] Tool "fetch" failed with ValueError (code execution_error).')
    assert text.endswith("so far")


def test_a_refusal_gives_reason_and_advice():
    assert outcomes.refused_text("No.", "Go on.") == "[ERROR] No. Go on."
    assert outcomes.refused_text("No.", "") == "[ERROR] No."
