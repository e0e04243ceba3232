"""The words of a repair say what is known of a call, and blame nobody who did nothing (H3, H5)."""

import pytest

from tests.turns.core.histories import assistant, call
from turns.core.history import RepairCause, interruption_note, repair


@pytest.mark.parametrize("cause", set(RepairCause) - {RepairCause.NOT_STARTED})
def test_a_synthetic_result_says_that_the_call_may_have_run(cause):
    words = repair([assistant(call("a", "exec"))], default_cause=cause).repairs[0].text
    assert words.startswith('[INTERRUPTED] Tool "exec"')
    assert "no result was recorded; it may or may not have run" in words


def test_a_call_that_never_started_is_said_not_to_have_started():
    words = (
        repair([assistant(call("a", "exec"))], causes={"a": RepairCause.NOT_STARTED})
        .repairs[0]
        .text
    )
    assert words == '[CANCELLED] Tool "exec" was not started.'


@pytest.mark.parametrize("cause", RepairCause)
def test_only_what_the_user_did_is_put_down_to_the_user(cause):
    words = repair([assistant(call("a"))], default_cause=cause).repairs[0].text
    assert ("user" in words) == (cause is RepairCause.USER)


@pytest.mark.parametrize("cause", [RepairCause.SIBLING, RepairCause.LOOP, RepairCause.SUPERSEDED])
def test_what_the_system_did_by_itself_is_worded_as_automatic(cause):
    assert "automatically" in repair([assistant(call("a"))], default_cause=cause).repairs[0].text


def test_each_cause_has_words_of_its_own():
    words = {
        repair([assistant(call("a"))], default_cause=cause).repairs[0].text for cause in RepairCause
    }
    assert len(words) == len(RepairCause)


def test_causes_are_looked_up_by_id_or_by_id_and_turn():
    history = [assistant(call("a"), turn="t1"), assistant(call("a"), call("b"), turn="t2")]
    by_id = repair(history, causes={"a": RepairCause.USER}, default_cause=RepairCause.TIMEOUT)
    assert [item.cause for item in by_id.repairs] == ["user", "user", "timeout"]
    by_turn = repair(
        history, causes=lambda id, turn: RepairCause.ADMIN if (id, turn) == ("a", "t2") else None
    )
    assert [item.cause for item in by_turn.repairs] == ["crash", "admin", "crash"]


def test_the_note_says_why_and_which_calls_may_have_run():
    note = interruption_note(
        RepairCause.USER,
        indeterminate=[call("c1", "exec"), call("c2", "web_fetch")],
        settled=[call("c3", "read_file")],
        not_started=[call("c4", "write_file")],
    )
    assert note.splitlines() == [
        "[INTERRUPTED] The previous turn did not reach its end: the user cancelled it.",
        "May have run in part or whole, check before repeating: exec (c1), web_fetch (c2).",
        "Finished, the results stand: read_file (c3).",
        "Not started: write_file (c4).",
    ]


def test_the_note_of_a_turn_without_calls_is_one_sentence():
    note = interruption_note(RepairCause.CRASH)
    assert (
        note
        == "[INTERRUPTED] The previous turn did not reach its end: the server ended unexpectedly."
    )
