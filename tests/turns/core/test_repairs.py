"""The words of a repair say what is known of a call, and blame nobody who did nothing (H3, H5)."""

import pytest

from governance import CancelReason
from tests.turns.core.histories import assistant, call
from turns.core.repairs import CRASH, Cause, interruption_note, repair

BY_USER = Cause.of(CancelReason.USER)
CAUSES = [CRASH, *map(Cause.of, CancelReason)]


def text_of(cause):
    return repair([assistant(call("a", "exec"))], cause_of=lambda turn: cause).repairs[0].text


@pytest.mark.parametrize("cause", CAUSES)
def test_a_synthetic_result_says_that_the_call_may_have_run(cause):
    assert text_of(cause).startswith('[INTERRUPTED] Tool "exec"')
    assert "no result was recorded; it may or may not have run" in text_of(cause)


@pytest.mark.parametrize("cause", CAUSES)
def test_only_what_the_user_did_is_put_down_to_the_user(cause):
    assert ("user" in text_of(cause)) == (cause == BY_USER)


@pytest.mark.parametrize(
    "reason", [CancelReason.DISCONNECT, CancelReason.LOOP, CancelReason.SUPERSEDED]
)
def test_what_the_system_did_by_itself_is_worded_as_automatic(reason):
    assert "automatically" in text_of(Cause.of(reason))


def test_each_cause_has_words_of_its_own():
    assert len({text_of(cause) for cause in CAUSES}) == len(CAUSES)


def test_a_reason_of_a_newer_version_is_told_as_a_cancel_and_not_as_a_crash():
    cause = Cause.of("moon_phase")
    assert cause.name == "moon_phase"
    assert '"exec": it was cancelled; no result was recorded' in text_of(cause)


def test_causes_are_looked_up_by_turn():
    history = [assistant(call("a"), turn="t1"), assistant(call("a"), call("b"), turn="t2")]
    repaired = repair(history, cause_of=lambda turn: BY_USER if turn == "t2" else CRASH)
    assert [item.cause.name for item in repaired.repairs] == ["crash", "user", "user"]


def test_the_note_says_why_and_which_calls_may_have_run():
    note = interruption_note(
        BY_USER,
        indeterminate=[call("c1", "exec"), call("c2", "web_fetch")],
        stopped=[call("c5", "wait")],
        finished=[call("c3", "read_file")],
        not_started=[call("c4", "write_file")],
    )
    assert note.splitlines() == [
        "[INTERRUPTED] The previous turn did not reach its end: the user cancelled it.",
        "May have run in part or whole, check before repeating: exec (c1), web_fetch (c2).",
        "Stopped before the end, no longer running: wait (c5).",
        "Finished, with valid results: read_file (c3).",
        "Not started: write_file (c4).",
    ]


def test_the_note_of_a_turn_without_calls_is_one_sentence():
    note = interruption_note(CRASH)
    assert (
        note
        == "[INTERRUPTED] The previous turn did not reach its end: the server ended unexpectedly."
    )
