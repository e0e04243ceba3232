"""Checkpoints do nothing unless the environment says so, and then exactly that, at the pass it names."""

import signal
import subprocess
import sys

import pytest

from governance.core import checkpoints
from governance.core.checkpoints import CheckpointFailure, checkpoint, parse_failpoints, trigger
from tests.support import run_program

SCRIPT = """
from governance import checkpoint
for number in range(1, 4):
    print(number, flush=True)
    checkpoint("here")
    checkpoint("there")
"""


def passes(crash: str) -> subprocess.CompletedProcess[str]:
    return run_program([sys.executable, "-c", SCRIPT], env={"TURNKEEPER_CRASH": crash})


def test_without_orders_nothing_happens():
    assert checkpoints._source is None
    checkpoint("after_claim")


def test_the_process_dies_at_the_pass_that_was_named():
    died = passes("here:2")
    assert died.returncode == -signal.SIGKILL
    assert died.stdout.split() == ["1", "2"]


def test_orders_in_a_file_may_change_while_the_process_runs(tmp_path):
    file = tmp_path / "orders"
    orders = checkpoints._find_source(f"@{file}")
    trigger(orders(), "here")
    file.write_text("here:raise:2")
    trigger(orders(), "here")
    with pytest.raises(CheckpointFailure):
        trigger(orders(), "here")
    file.write_text("there:raise")
    trigger(orders(), "here")


def test_what_is_not_understood_is_refused_at_the_start():
    assert "does not know" in passes("here:explode").stderr


def test_a_failure_comes_once_and_only_at_its_place():
    orders = parse_failpoints("here:raise:2, there:sleep=0")
    trigger(orders, "here")
    trigger(orders, "elsewhere")
    trigger(orders, "there")
    with pytest.raises(CheckpointFailure):
        trigger(orders, "here")
    trigger(orders, "here")


@pytest.mark.parametrize("text", [":3", "here:raise:x", "here:sleep=long"])
def test_orders_that_make_no_sense_are_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - float() has words of its own
        parse_failpoints(text)
