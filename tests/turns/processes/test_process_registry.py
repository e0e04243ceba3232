"""Processes as owners of turns: recorded at the start, retired at the end, told apart when a pid recurs."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.db.models.signals import post_init, post_save

import turns
from tests.turns.row_factory import make_process
from tests.turns.support import in_database, row
from tests.turns.threads import at_once
from turns.models import Process
from turns.models.processes import ProcessEnding
from turns.processes import process_registry
from turns.running import runtime

pytestmark = pytest.mark.django_db(transaction=True)


def test_this_process_is_alive_until_it_retires(db):
    process = process_registry.register()
    assert process.pid == os.getpid()
    assert process_registry.end_dead() == 0
    assert process_registry.renew(process)
    process_registry.retire(process)
    process.refresh_from_db()
    ended_at = process.ended_at
    assert process.ending == ProcessEnding.STOPPED
    assert not process_registry.renew(process)
    process_registry.retire(process)
    process.refresh_from_db()
    assert process.ended_at == ended_at


def test_a_sweep_reads_no_row_of_a_process_that_is_well_elsewhere():
    read: list[Process] = []

    def note(instance: Process, **_signal: Any) -> None:
        read.append(instance)

    for number in range(20):
        make_process(name=f"well-{number}")
    dead = make_process(age=3600)
    post_init.connect(note, sender=Process)
    try:
        assert process_registry.end_dead() == 1
    finally:
        post_init.disconnect(note, sender=Process)
    assert read == [dead]


def test_a_process_that_renews_its_lease_just_after_it_was_read_lives():
    process = make_process(age=3600)

    def renew(instance: Process, **_signal: Any) -> None:
        process_registry.renew(instance)

    post_init.connect(renew, sender=Process)
    try:
        assert process_registry.end_dead() == 0
    finally:
        post_init.disconnect(renew, sender=Process)
    process.refresh_from_db()
    assert process.ended_at is None


def test_a_process_says_which_version_of_the_code_it_runs():
    assert process_registry.register().code_version == turns.__version__ != ""


def test_nobody_sees_a_process_before_its_lease_has_begun():
    def look_from_elsewhere(**_signal: Any) -> None:
        """As another process does that sweeps in this very moment."""
        at_once([process_registry.end_dead])

    post_save.connect(look_from_elsewhere, sender=Process)
    try:
        process = process_registry.register()
    finally:
        post_save.disconnect(look_from_elsewhere, sender=Process)
    assert process_registry.renew(process)


def test_a_process_that_has_ended_has_no_start():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process_registry.start_ticks(child.pid) > 0
    child.communicate(b"\n")
    assert process_registry.start_ticks(child.pid) == -1


def test_a_zombie_is_not_alive():
    child = subprocess.Popen([sys.executable, "-c", "print('bye')"], stdout=subprocess.PIPE)
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped yet
    assert process_registry.start_ticks(child.pid) == -1
    child.communicate()


def test_a_process_of_another_host_is_alive_as_long_as_its_lease_runs(settings):
    settings.TURNS_LEASE_TTL = 60
    for age, lives in ((0, True), (30, True), (61, False)):
        elsewhere = make_process(pid=2**22 + 1, age=age)
        assert process_registry.end_dead() == (not lives)
        elsewhere.refresh_from_db()
        assert elsewhere.ending == ("" if lives else ProcessEnding.SILENT)
        assert process_registry.renew(elsewhere) is lives
        process_registry.retire(elsewhere)


def test_who_may_open_no_more_files_takes_nobody_for_dead():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ticks = process_registry.start_ticks(child.pid)
        here = {
            "boot_id": process_registry.boot_id(),
            "pid_namespace": process_registry.pid_namespace(),
        }
        alive = [make_process(**here, pid=child.pid, start_ticks=known) for known in (ticks, 0)]
        other = make_process(**here, pid=child.pid, start_ticks=ticks - 1)
        with no_more_files():
            assert process_registry.end_dead() == 0
        assert process_registry.end_dead() == 1
        assert [process_registry.renew(process) for process in (*alive, other)] == [
            True,
            True,
            False,
        ]
        child.communicate(b"\n")
    with no_more_files():
        assert process_registry.end_dead() == 2
    endings = Process.objects.filter(pk__in=[other.pk, *(process.pk for process in alive)])
    assert set(endings.values_list("ending", flat=True)) == {ProcessEnding.DIED}


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process have as many open files as it has, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 1, hard))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


async def test_a_runtime_registers_once_and_retires_when_it_stops(site):
    first = await runtime.ensure_started()
    assert await runtime.ensure_started() is first
    assert await in_database(Process.objects.count) == 1
    assert (await row(Process, pk=first.process.pk)).ended_at is None
    await runtime.stop(grace=0)
    assert (await row(Process, pk=first.process.pk)).ended_at is not None
    await runtime.stop(grace=0)
    second = await runtime.ensure_started()
    assert second.process.pk != first.process.pk
