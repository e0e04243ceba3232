"""This process as a possible owner of turns, and whether another one is still alive (H4; sync ORM)."""

import os
import socket
from datetime import datetime, timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from governance import runtime
from governance.db_clock import now_minus
from governance.policy_reports import PolicyReport
from governance.prepared_statements import Select
from turns.conf import app_settings
from turns.models import Process


def register(
    *,
    role: str = "embedded",
    name: str = "",
    turn_limit: int = 0,
    has_shared_layer: bool = False,
) -> Process:
    """Write this process down as a possible owner of turns; its lease begins now, by the database's clock."""
    pid = os.getpid()
    with transaction.atomic():  # without a lease others would take it for dead
        process = Process.objects.create(
            host=socket.gethostname()[:255],
            boot_id=boot_id(),
            pid_namespace=pid_namespace(),
            pid=pid,
            start_ticks=start_ticks(pid),
            name=(name or app_settings.PROCESS_NAME)[:255],
            code_version=code_version(),
            role=role,
            turn_limit=turn_limit,
            has_shared_layer=has_shared_layer,
        )
        renew(process)
    return process


def renew(process: Process) -> bool:
    """Renew the lease, and report what the process runs with. False if somebody has ended it.

    Then the process owns nothing any more, and never will again.
    """
    ours = Process.objects.filter(pk=process.pk, ended_at=None)
    return bool(
        ours.update(
            seen_at=Now(),
            policy_version=runtime.limits_version(),
            abandoned=runtime.load().abandoned,
        )
    )


def policy_reports() -> list[PolicyReport]:
    """Return with which version of the limits each process runs that has not ended."""
    processes = Process.objects.filter(ended_at=None).annotate(now=Now())
    return [_report(process, process.now) for process in processes.order_by("pk")]


def is_stale(process: Process, now: datetime) -> bool:
    """Whether the lease of a process has run out, by the database's clock."""
    ttl = timedelta(seconds=app_settings.LEASE_TTL)
    return process.seen_at is None or process.seen_at < now - ttl


def note_draining(process: Process) -> None:
    """Note that this process starts no turns any more, and since when."""
    Process.objects.filter(pk=process.pk, draining_at=None).update(draining_at=Now())


def retire(process: Process) -> None:
    """Note that this process owns no turns any more."""
    Process.objects.filter(pk=process.pk, ended_at=None).update(ended_at=Now())


def alive() -> QuerySet[Process]:
    """Return the processes that have not ended and whose lease runs."""
    return Process.objects.filter(ended_at=None).exclude(_lease_has_run_out())


def unreachable(process: Process) -> list[Process]:
    """Return the other processes that are alive on this database, if these and this one do not hear each other."""
    return list(alive().exclude(pk=process.pk)) if lack_shared_layer() else []


def lack_shared_layer() -> bool:
    """Whether several processes are alive of which one at least cannot hear the others."""
    layers = list(alive().values_list("has_shared_layer", flat=True)[:1000])
    return len(layers) > 1 and not all(layers)


def end_dead() -> int:
    """End the registration of every process that is dead; return how many were.

    It is the row that decides: once it has ended, its lease cannot be renewed. Whoever sees its turns first ends
    them. Several processes may look at once.
    """
    ended = 0
    for process in _REGISTERED.all():
        is_gone = is_here(process) and not has_its_pid(process)
        if not is_gone and not is_stale(process, process.now):
            continue
        of_process = Process.objects.filter(pk=process.pk, ended_at=None)
        if not is_gone:  # it may have renewed its lease since
            of_process = of_process.filter(_lease_has_run_out())
        ended += of_process.update(ended_at=Now())
    return ended


_REGISTERED: "Select[Any]" = Select(
    lambda: (
        Process.objects.filter(ended_at=None)
        .only("pid", "pid_namespace", "boot_id", "start_ticks", "seen_at")
        .annotate(now=Now())
        .order_by()
    )
)


def is_here(process: Process) -> bool:
    """Return whether the table of processes that we see has, or had, this one.

    Only one machine can use a database file, so there another boot means an earlier one of this machine.
    """
    if process.pid_namespace != pid_namespace():
        return False
    is_same_boot = bool(process.pid_namespace) and "" != process.boot_id == boot_id()
    return is_same_boot or connection.vendor == "sqlite"


def has_its_pid(process: Process) -> bool:
    """Return whether the pid of a process that `is_here` still belongs to it, or may. What is not known proves no death."""
    if process.boot_id != boot_id():
        return False
    found = start_ticks(process.pid)
    return found == process.start_ticks or (found >= 0 and 0 in (found, process.start_ticks))


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
def code_version() -> str:
    """Return the installed version of the package; empty where it runs from its sources."""
    try:
        return version("django-turnkeeper")
    except PackageNotFoundError:
        return ""


@cache
def boot_id() -> str:
    """Return what tells one boot of this machine from another; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


@cache
def pid_namespace() -> str:
    """Return in which namespace our pids are (a container has its own); empty where the system does not say."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot. -1 if there is none, 0 if that is unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:  # it is gone, or hidden from us, or we may open no more files
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
