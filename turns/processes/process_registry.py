"""Registers this process as a possible owner of turns, and detects dead processes (H4).

The functions here use the synchronous ORM.
"""

import os
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from governance import runtime
from governance.db import atomic, database_connection
from governance.db_clock import database_now, now_minus
from turns import __version__
from turns.conf import app_settings
from turns.core.turns import TurnEnding
from turns.models import Process
from turns.models.processes import ProcessEnding

SILENT = 6.0  # seconds after which a process is reported as silent
leases_here: set[UUID] = set()  # rows whose leases are renewed by this process
lost_here: dict[
    Any, TurnEnding
] = {}  # rows whose leases this process has lost, and how their turns end


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReport:
    """The version of the limits that a process has reported. `silence` is the number of seconds since this report.

    `is_here` is true for the process that reads the report.
    """

    name: str
    version: int
    silence: float
    is_here: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether the current state of the process is unknown."""
        return self.silence > SILENT and not self.is_here


def register(
    *,
    role: str = "embedded",
    name: str = "",
    turn_limit: int = 0,
    has_shared_layer: bool = False,
) -> Process:
    """Register this process as a possible owner of turns; its lease starts now, by the database's clock."""
    pid = os.getpid()
    _set_clock()
    with atomic():  # without a lease, other processes would consider it dead
        process = Process.objects.create(
            host=socket.gethostname()[:255],
            boot_id=boot_id(),
            pid_namespace=pid_namespace(),
            pid=pid,
            start_ticks=start_ticks(pid),
            name=(name or app_settings.PROCESS_NAME)[:255],
            code_version=__version__,
            role=role,
            turn_limit=turn_limit,
            has_shared_layer=has_shared_layer,
        )
        renew(process)
    return process


def renew(process: Process) -> bool:
    """Renew the lease, and report the state of the process. Return False if another process has ended its registration.

    With this registration, the process then never owns turns again.
    """
    _set_clock()
    ours = Process.objects.filter(pk=process.pk, ended_at=None)
    return bool(
        ours.update(
            seen_at=Now(),
            policy_version=runtime.limits_version(),
            abandoned=runtime.load().abandoned,
        )
    )


def _set_clock() -> None:
    """Measure the database's clock for `db_clock.now`. With SQLite, this machine's clock is used instead."""
    if database_connection().vendor != "sqlite":
        database_now()


def policy_reports() -> list[PolicyReport]:
    """Return the version of the limits that each process reports, for every process that has not ended."""
    processes = Process.objects.filter(ended_at=None).annotate(now=Now())
    return [_report(process, process.now) for process in processes.order_by("pk")]


def is_stale(process: Process, now: datetime) -> bool:
    """Return whether a process's lease has expired, by the database's clock."""
    ttl = timedelta(seconds=app_settings.LEASE_TTL)
    return process.seen_at is None or process.seen_at < now - ttl


def note_draining(process: Process) -> None:
    """Record that this process starts no more turns."""
    Process.objects.filter(pk=process.pk, draining_at=None).update(draining_at=Now())


def retire(process: Process, ending: ProcessEnding = ProcessEnding.STOPPED) -> None:
    """Record that this process owns no more turns, and the reason (`ending`)."""
    Process.objects.filter(pk=process.pk, ended_at=None).update(ended_at=Now(), ending=ending)


def alive() -> QuerySet[Process]:
    """Return the processes that have not ended and have a valid lease."""
    return Process.objects.filter(ended_at=None).exclude(_lease_has_run_out())


def is_alone(process: Process) -> bool:
    """Return whether this process's registration has not ended, and no other process on its database is alive."""
    is_ours = Process.objects.filter(pk=process.pk, ended_at=None).exists()
    return is_ours and not alive().exclude(pk=process.pk).exists()


def unreachable(process: Process) -> list[Process]:
    """Return the other live processes on this database that cannot exchange messages with this one."""
    return list(alive().exclude(pk=process.pk)) if lack_shared_layer() else []


def lack_shared_layer() -> bool:
    """Return whether several processes are alive but at least one cannot receive messages from the others."""
    layers = list(alive().values_list("has_shared_layer", flat=True)[:1000])
    return len(layers) > 1 and not all(layers)


def end_dead() -> int:
    """End the registration of every dead process, and record how it was detected; return their number.

    Once a registration has ended, its lease cannot be renewed, so several processes may check concurrently. The first
    process that sees the turns ends them.
    """
    ended = 0
    # Skip this process: after a suspension, it looks stale until its lease's thread has queried the database.
    others = Process.objects.filter(ended_at=None).exclude(pk__in=leases_here)
    candidates = others.filter(_may_be_dead()).only(
        "pid", "pid_namespace", "boot_id", "start_ticks", "seen_at"
    )
    for process in candidates.annotate(now=Now()):
        is_gone = has_died(process)
        if not is_gone and not is_stale(process, process.now):
            continue
        of_process = Process.objects.filter(pk=process.pk, ended_at=None)
        if not is_gone:  # it may have renewed its lease in the meantime
            of_process = of_process.filter(_lease_has_run_out())
        ending = ProcessEnding.DIED if is_gone else ProcessEnding.SILENT
        ended += of_process.update(ended_at=Now(), ending=ending)
    return ended


def has_died(process: Process) -> bool:
    """Return whether the visible process table proves that a process is gone."""
    return is_here(process) and not has_its_pid(process)


def is_here(process: Process) -> bool:
    """Return whether a process runs, or ran, in the process table that is visible here.

    Only one machine can use a database file, so a different boot id there is an earlier boot of this machine.
    """
    if process.pid_namespace != pid_namespace():
        return False
    is_same_boot = bool(process.pid_namespace) and "" != process.boot_id == boot_id()
    return is_same_boot or database_connection().vendor == "sqlite"


def has_its_pid(process: Process) -> bool:
    """Return whether a process that `is_here` still has, or may have, its pid. If that is unknown, the process is not
    considered dead.
    """
    if process.boot_id != boot_id():
        return False
    ticks = start_ticks(process.pid)
    return ticks == process.start_ticks or (ticks >= 0 and 0 in (ticks, process.start_ticks))


def _may_be_dead() -> Q:
    """Return the condition for processes with an expired lease, and for those that this process can check. Other
    processes of other machines are left out, because there may be many.
    """
    if database_connection().vendor == "sqlite":
        return Q(pid_namespace=pid_namespace()) | _lease_has_run_out()
    here = Q(pid_namespace=pid_namespace(), boot_id=boot_id())
    return here & ~Q(pid_namespace="") & ~Q(boot_id="") | _lease_has_run_out()


def _lease_has_run_out() -> Q:
    return Q(seen_at=None) | Q(seen_at__lt=now_minus(timedelta(seconds=app_settings.LEASE_TTL)))


def _report(process: Process, now: datetime) -> PolicyReport:
    is_here = is_this_process(process)
    return PolicyReport(
        name=str(process),
        version=runtime.limits_version() if is_here else process.policy_version,
        silence=(now - (process.seen_at or process.started_at)).total_seconds(),
        is_here=is_here,
    )


def is_this_process(process: Process) -> bool:
    is_ours = (process.pid, process.boot_id, process.pid_namespace) == (
        os.getpid(),
        boot_id(),
        pid_namespace(),
    )
    return is_ours and process.start_ticks == start_ticks(process.pid)


@cache
def boot_id() -> str:
    """Return the id of this machine's boot; empty if the system does not provide it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


@cache
def pid_namespace() -> str:
    """Return the pid namespace (each container has its own); empty if the system does not provide it."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_ticks(pid: int) -> int:
    """Return the time at which a process started, in clock ticks since boot; -1 if the process does not exist, and 0 if
    the time is unknown.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:  # it is gone or hidden from this process, or too many files are open
        return _exists(pid)
    fields = stat.rpartition(")")[2].split()
    return -1 if fields[0] in "ZX" else int(fields[19])


def _exists(pid: int) -> int:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return -1
    except PermissionError:
        return 0
    return 0
