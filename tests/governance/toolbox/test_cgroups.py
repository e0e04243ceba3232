"""The control group of a command: what is asked of the kernel, in its files (G1)."""

import os
import subprocess

import pytest

from governance.toolbox import cgroups
from governance.toolbox.cgroups import CommandGroup, find_group, open_group
from governance.toolbox.resource_limits import ResourceLimits


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """Here the files do not go with their directory, as they do in the kernel's file system."""
    monkeypatch.setattr(cgroups, "_WAIT", 0.0)


@pytest.fixture
def limits(tmp_path):
    return ResourceLimits(memory=5_000_000, processes=7, group=str(tmp_path))


def test_a_command_enters_a_group_with_its_limits(limits, tmp_path):
    group = open_group(limits)
    [place] = tmp_path.iterdir()
    assert (place / "memory.max").read_text() == "5000000"
    assert (place / "memory.swap.max").read_text() == "0"
    assert (place / "memory.oom.group").read_text() == "1"
    assert (place / "pids.max").read_text() == "7"
    done = subprocess.run(
        group.wrap(("/bin/sh", "-c", "echo $$; exit 3")), capture_output=True, check=False
    )
    assert done.returncode == 3
    assert (place / "cgroup.procs").read_bytes() == done.stdout
    assert group.close() == ""
    assert (place / "cgroup.kill").read_text() == "1"


def test_what_was_met_is_told(limits, tmp_path):
    group = CommandGroup(limits)
    [place] = tmp_path.iterdir()
    (place / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 3\n")
    (place / "pids.events").write_text("max 2\n")
    assert group.close() == "memory and processes"


def test_what_nobody_has_closed_is_removed_before_the_next_command(limits, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    cancelled, killed = (tmp_path / f"command-{pid}-x" for pid in (os.getpid(), gone.pid))
    others = tmp_path / f"command-{os.getppid()}-x"
    for path in (cancelled, killed, others, tmp_path / "server"):
        path.mkdir()
    running = open_group(ResourceLimits(group=str(tmp_path)))
    second = open_group(ResourceLimits(group=str(tmp_path)))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {others.name, "server", running.path.name, second.path.name}


def test_without_limits_the_files_stay_as_they_are(tmp_path):
    CommandGroup(ResourceLimits(group=str(tmp_path)))
    [place] = tmp_path.iterdir()
    assert not (place / "memory.max").exists()
    assert not (place / "pids.max").exists()


def test_where_none_can_be_made_commands_run_without(tmp_path):
    assert open_group(ResourceLimits()) is None
    assert open_group(ResourceLimits(group=str(tmp_path / "missing"))) is None


def test_a_group_that_was_not_handed_over_is_left_alone(monkeypatch, tmp_path):
    """As root could write it everywhere: only systemd's word counts, and it is not given for this directory."""
    find_group.cache_clear()
    (tmp_path / "cgroup.procs").write_text("1\n")
    monkeypatch.setattr(cgroups, "_own_group", lambda: tmp_path)
    try:
        assert find_group() == ""
    finally:
        find_group.cache_clear()
    assert [file.name for file in tmp_path.iterdir()] == ["cgroup.procs"]


def test_memory_is_said_to_be_of_all_together(tmp_path):
    alone = ResourceLimits(memory=10**9, program="/usr/bin/prlimit")
    assert alone.description == "1 GB of memory for each"
    together = ResourceLimits(memory=10**9, program="/usr/bin/prlimit", group=str(tmp_path))
    assert together.description == "1 GB of memory"
