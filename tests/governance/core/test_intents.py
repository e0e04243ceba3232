"""A message that is nothing but a wish to stop is a cancel; no other is (C6, acceptance 41)."""

import pytest

from governance.core.intents import is_cancel_intent


@pytest.mark.parametrize(
    "text",
    [
        "stop",
        "ok nvm",
        "just stop it",
        "please cancel",
        "cancel",
        "never mind",
        "nevermind",
        "nvm",
        "forget it",
        "abort",
        "quit",
        "Stop!",
        "STOP!!!",
        "  stop  ",
        "stop.",
        "/stop",
        "ok, stop.",
        "oh no, wait — stop!",
        "hmm, actually never mind",
        "hey, just cancel everything",
        "cancel the turn",
        "stop all",
        "stop this now",
        "stop please",
        "stop now",
        "never mind, thanks",
        "forget it please",
        "stop stop stop",
        "stop, cancel that",
        "never\n mind",
        "ＳＴＯＰ",  # noqa: RUF001 - full width, folded by NFKC
        "st\u200bop",
        "stop 🛑",
    ],
)
def test_whole_message_wish_is_a_cancel(text):
    assert is_cancel_intent(text)


@pytest.mark.parametrize(
    "text",
    [
        "don't stop the music",
        "can you cancel my subscription",
        "stop that please",
        "",
        "   ",
        "?!",
        "ok",
        "please",
        "wait",
        "no",
        "it",
        "the turn",
        "nonstop",
        "stopping",
        "stop using emojis",
        "stop don't do anything",
        "how do I quit vim",
        "quit smoking tips",
        "cancel order 17",
        "never mind the gap",
        "do not cancel",
        "don't stop",
        "stop it all the time",
        "why did you stop",
        "stop the server",
        "s t o p",
        "stop " * 1000,
    ],
)
def test_ordinary_message_is_no_cancel(text):
    assert not is_cancel_intent(text)


def test_a_pasted_megabyte_is_decided_without_reading_it():
    assert not is_cancel_intent("ok " * 500_000 + "stop")


def test_a_long_row_of_openers_is_decided_at_once():
    assert not is_cancel_intent("hmmm " * 40)
