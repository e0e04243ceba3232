"""This process as an owner of turns, and whether another one on this host is still alive (H4; sync ORM)."""

import os
import socket
from pathlib import Path

from django.db import connection
from django.utils import timezone

from turns.models import Process


def register() -> Process:
    """Write this process down as a possible owner of turns."""
    pid = os.getpid()
    return Process.objects.create(
        host=socket.gethostname()[:255], boot_id=boot_id(), pid=pid, start_ticks=start_ticks(pid)
    )


def retire(process: Process) -> None:
    """Note that this process owns no turns any more."""
    Process.objects.filter(pk=process.pk, ended_at=None).update(ended_at=timezone.now())


def is_alive(process: Process, *, only_this_host: bool | None = None) -> bool:
    """Return whether the owner may still be writing: it has not retired, and its pid is still the same program.

    Of another host nothing is known, so it counts as alive, unless `only_this_host` can use the database (that is so
    where it is a file): then this host has only got another name.
    """
    if only_this_host is None:
        only_this_host = connection.vendor == "sqlite"
    if process.ended_at is not None:
        return False
    if process.host != socket.gethostname()[:255]:
        return not only_this_host
    if process.boot_id != boot_id():
        return False
    return process.start_ticks == start_ticks(process.pid)


def boot_id() -> str:
    """Return what tells one boot of this machine from another; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; -1 if there is none, 0 where it cannot be known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except FileNotFoundError:
        return -1 if Path("/proc/self").exists() else _exists(pid)
    except OSError:
        return -1
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
