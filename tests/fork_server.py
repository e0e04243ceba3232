"""Starts Python processes in a fraction of the time: one process that has imported the libraries forks itself for each.

The children belong to whoever asked, not to the fork server. It forks twice, and the one who asked adopts orphans for that
moment. So it can wait for them, and they die with it. Libraries only are imported ahead, nothing that looks at settings,
starts a thread or opens an event loop.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBRARIES = (
    "OpenSSL.SSL",
    "autobahn.twisted.websocket",
    "channels.generic.websocket",
    "channels_redis.pubsub",
    "django.contrib.admin.sites",
    "django.core.management.commands.migrate",
    "django.db.backends.sqlite3.base",
    "django.db.models",
    "django.http",
    "django.test",
    "environ",
    "httpx",
    "markdown_it",
    "mcp",
    "nh3",
    "prometheus_client",
    "psycopg_pool",
    "twisted.internet.asyncioreactor",
    "twisted.internet.endpoints",
    "twisted.internet.tcp",
    "twisted.web.http",
    "uvicorn.config",
    "websockets.asyncio.server",
)


class ForkServer:
    """The forking process, seen from the tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one question at a time, and one who adopts
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "tests.faults.settings"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def spawn(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        errors: Path | None = None,
        directory: Path = ROOT,
    ) -> int:
        """Start a Python process and return its pid; it is a child of this process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        wanted = {
            "arguments": [*arguments],
            "environment": dict(environment),
            "log": str(log),
            "errors": str(errors or log),
            "directory": str(directory),
            "parent": os.getpid(),
        }
        with self._lock:
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                self._process.stdin.write(json.dumps(wanted) + "\n")
                self._process.stdin.flush()
                return int(self._process.stdout.readline())
            finally:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0)

    def close(self) -> None:
        """End it; what it has started goes on."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=180)
        assert self._process.stdout is not None
        self._process.stdout.close()


@cache
def shared_fork_server() -> ForkServer:
    """Return the fork server of this run of tests; it ends with it."""
    made = ForkServer()
    atexit.register(made.close)
    return made


def main() -> None:
    """Fork for each line that is read."""
    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    gc.freeze()
    for line in iter(sys.stdin.readline, ""):
        pid = _fork(json.loads(line))
        print(pid, flush=True)  # noqa: T201 - the answer


def _fork(wanted: Mapping[str, Any]) -> int:
    answer, told = os.pipe()
    middle = os.fork()
    if middle == 0:
        child = os.fork()
        if child:
            os.write(told, str(child).encode())
            os._exit(0)
        os.close(answer)
        os.close(told)
        _become(wanted)
    os.close(told)
    os.waitpid(middle, 0)  # from here on the child belongs to whoever adopts orphans
    pid = int(os.read(answer, 32))
    os.close(answer)
    return pid


def _become(wanted: Mapping[str, Any]) -> None:
    """Be the process that was asked for."""
    os.setsid()
    while os.getppid() not in (1, wanted["parent"]):
        select.select([], [], [], 0.001)
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    silence = os.open(os.devnull, os.O_RDONLY)
    log, errors = (
        os.open(wanted[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("log", "errors")
    )
    for descriptor, target in ((silence, 0), (log, 1), (errors, 2)):
        os.dup2(descriptor, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["directory"])
    os.umask(0o022)  # as most shells have it
    arguments: list[str] = wanted["arguments"]
    if (
        "LD_PRELOAD" in os.environ
    ):  # a library that takes the place of others has to be there from the beginning
        os.execv(sys.executable, [sys.executable, *arguments])
    has_script = arguments[0] not in ("-m", "-c")
    first = str(Path(arguments[0]).resolve().parent) if has_script else wanted["directory"]
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [first, *paths]
    sys.argv = {"-m": arguments[1:], "-c": ["-c", *arguments[2:]]}.get(arguments[0], arguments)
    code: int | str | None = 0
    try:
        if arguments[0] == "-m":
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        elif arguments[0] == "-c":
            exec(arguments[1], {"__name__": "__main__"})
        else:
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:  # noqa: BLE001 - what Python would print
        sys.excepthook(*sys.exc_info())
        code = 1
    _leave(code)


def _leave(code: int | str | None) -> None:
    """End as an interpreter does: threads that are no daemons, what was registered for the end, files, buffers."""
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _close_databases()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _close_databases() -> None:
    """Close SQLite files. The last connection of one brings what lies beside it into the file itself."""
    conf, db = sys.modules.get("django.conf"), sys.modules.get("django.db")
    if conf and db and conf.settings.configured:
        db.connections.close_all()


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
