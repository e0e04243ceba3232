"""What is made once in a run of tests. The first worker that needs it makes it, the others wait and share it."""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.processes import run_python

_MIGRATE = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
"""
_shared: list[Path] = []


def share_in(directory: Path) -> None:
    """Keep what is made in a directory that all workers of this run have."""
    _shared[:] = [directory]


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return a directory as `make` has filled it. Nobody may change what is in it."""
    made = _directory() / name
    with (made.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            making = Path(tempfile.mkdtemp(dir=made.parent))
            make(making)
            making.rename(made)
    return made


def migrated_file() -> Path:
    """Return a SQLite file with the tables of the shipped site."""
    return made_once("migrated", _migrate) / "db.sqlite3"


def _migrate(directory: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(directory),
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    done = run_python("-c", _MIGRATE, environment=environment)
    assert done.returncode == 0, done.stderr


def _directory() -> Path:
    return _shared[0] if _shared else _of_this_process()


@cache
def _of_this_process() -> Path:
    made = Path(tempfile.mkdtemp(prefix="turnkeeper-made-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
