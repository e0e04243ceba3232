"""Each reason has one row, and no two rows say the same."""

import copy
import json
import pickle

import pytest

from governance.core.cancel_reasons import CancelReason

WORDS = ("label", "on_page", "who", "ended")


@pytest.mark.parametrize("name", WORDS)
def test_reasons_have_words_of_their_own(name):
    words = [getattr(reason.row, name) for reason in CancelReason]
    assert all(words)
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("reason", CancelReason)
def test_a_reason_is_still_its_name(reason):
    assert CancelReason(str(reason)) is reason
    assert json.loads(json.dumps({"reason": reason})) == {"reason": reason.value}
    assert pickle.loads(pickle.dumps(reason)) is reason
    assert copy.deepcopy(reason) is reason
