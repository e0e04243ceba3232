"""The sandbox of commands: bubblewrap, where it is installed and works.

Inside, only the workspace is writable. The system's software is read-only, `/tmp` is private, and the process table
shows nothing of the server. There is no network unless a setting allows it. Resources are limited. Everything that a
command starts ends with it, and with the server.
"""

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from governance.core.exceptions import ToolFailed
from governance.toolbox.cgroups import find_group
from governance.toolbox.resource_limits import SHARED_MEMORY, ResourceLimits, find_limiter
from governance.toolbox.settings import SandboxChoice, ToolboxSettings

_PROGRAM = "bwrap"
_PROBE_TIMEOUT = 5.0
_FLAGS = (
    # The server starts each command in a session of its own, without a terminal. With this one, the
    # signals that end the command reach the command and not the sandbox around it. A signal to the
    # sandbox would take the command's grace away.
    "--new-session",
    "--die-with-parent",
    "--unshare-user-try",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
)
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Not all of /etc: it may hold what only the server's user may read (private keys, passwords of services).
_ETC = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "profile",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)

_IDENTIFY = """while [ "$1" != -- ]; do
  [ "$(stat -c %d:%i "$1")" = "$2" ] || { echo "The directory $1 was replaced by another one meanwhile." >&2; exit 1; }
  shift 2
done
shift
exec "$@"
"""


class Mode(StrEnum):
    """How commands are kept in."""

    BWRAP = "bwrap"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The sandbox in force. `problem` says why bubblewrap is not used though requested; `is_demanded` = no commands
    without it.

    `is_roots`: the server runs as root, so a flaw of the system's isolation is a flaw of the sandbox.
    """

    mode: Mode
    program: str = ""
    network: bool = False
    readable: tuple[str, ...] = ()
    problem: str = ""
    is_demanded: bool = False
    is_roots: bool = False
    limits: ResourceLimits = field(default_factory=ResourceLimits)

    @property
    def is_trusted(self) -> bool:
        """Whether commands are isolated well enough to run without approval."""
        is_meant = self.is_demanded or not self.is_roots
        return self.mode is not Mode.NONE and not self.network and is_meant

    @property
    def is_missing(self) -> bool:
        """Whether no command may run, since the sandbox that was demanded does not work."""
        return self.is_demanded and self.mode is Mode.NONE

    @property
    def description(self) -> str:
        """The mode in a few words, for people."""
        if self.mode is Mode.NONE:
            return "no sandbox, with all rights of the server's user"
        return f"sandbox (bubblewrap), {'with' if self.network else 'no'} network"

    def wrap(
        self,
        arguments: tuple[str, ...],
        *,
        workspace: Path,
        directory: Path,
        identities: Mapping[Path, str] | None = None,
    ) -> tuple[str, ...]:
        """Return the command line that runs `arguments` in the sandbox; unchanged without one.

        Bubblewrap finds directories by path, where a link may have been put meanwhile. So it runs nothing unless the
        directories inside are the intended ones: `identities` has device and inode of each.
        """
        if self.mode is Mode.NONE:
            return arguments
        if identities:
            pairs = (word for path, known in identities.items() for word in (str(path), known))
            arguments = ("/bin/sh", "-c", _IDENTIFY, "sh", *pairs, "--", *arguments)
        root = str(workspace)
        return (
            *self.prefix,
            *("--bind", root, root, "--remount-ro", "/", "--chdir", str(directory), "--"),
            *self.limits.wrap(arguments),
        )

    @property
    def prefix(self) -> tuple[str, ...]:
        """The beginning of the command line: all but the workspace."""
        seen = (*_SYSTEM, *(f"/etc/{name}" for name in _ETC), *self.readable)
        return (
            self.program,
            *_FLAGS,
            *(() if self.network else ("--unshare-net",)),
            # Read-only as a whole: for root the kernel's own settings below /proc/sys could be written otherwise.
            *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"),
            *self.limits.mount("/dev/shm", SHARED_MEMORY),  # noqa: S108 - its own
            *("--remount-ro", "/dev"),
            *self.limits.mount("/tmp", self.limits.tmp_size),  # noqa: S108 - its own
            *(part for path in seen for part in ("--ro-bind-try", path, path)),
        )


def find_sandbox(settings: ToolboxSettings) -> Sandbox:
    """Return the sandbox in force. Starts bubblewrap once in a process, to see whether it works: call it in a thread."""
    if settings.exec_sandbox is SandboxChoice.NONE:
        return Sandbox(mode=Mode.NONE)
    is_demanded = settings.exec_sandbox is SandboxChoice.BWRAP
    without = functools.partial(Sandbox, mode=Mode.NONE, is_demanded=is_demanded)
    program = shutil.which(_PROGRAM)
    if program is None:
        return without(problem="bubblewrap (bwrap) is not installed")
    found = Sandbox(
        mode=Mode.BWRAP,
        program=program,
        network=settings.exec_network,
        readable=tuple(settings.exec_readable),
        is_demanded=is_demanded,
        is_roots=os.geteuid() == 0,
        limits=_limits(settings),
    )
    problem = _try(found)
    if problem:  # an old one, perhaps, which knows no sizes
        found = replace(found, limits=replace(found.limits, can_size=False))
    return without(problem=problem) if problem and _try(found) else found


def _limits(settings: ToolboxSettings) -> ResourceLimits:
    return ResourceLimits(
        processes=settings.exec_max_processes,
        memory=settings.exec_memory,
        file_size=settings.exec_file_size,
        tmp_size=settings.exec_tmp_size,
        cpu_time=settings.exec_cpu_time,
        program=find_limiter(),
        group=find_group(),
    )


def require_sandbox(settings: ToolboxSettings) -> Sandbox:
    """Return the sandbox in force. Raise `ToolFailed` if one was demanded and there is none."""
    sandbox = find_sandbox(settings)
    if sandbox.is_missing:
        raise ToolFailed(
            "Nothing was run: this server runs commands only in a sandbox, and the sandbox does not work. "
            "An administrator finds the reason with `manage.py check`."
        )
    return sandbox


@functools.cache
def find_gaps(sandbox: Sandbox) -> tuple[str, ...]:
    """Return phrases for the limits that do not hold here, by trying them; blocks, so call it in a thread."""
    limits = sandbox.limits
    gaps: tuple[str, ...] = ()
    if limits.tmp_size and not limits.can_size:
        gaps = ("the size of /tmp",)
    tried = (
        ("the number of processes", limits.processes, ResourceLimits(processes=1), "(:)"),
        ("memory", limits.memory, ResourceLimits(memory=1 << 16), ":"),
        (
            "the size of files",
            limits.file_size,
            ResourceLimits(file_size=1),
            "echo too much >/tmp/x",
        ),
    )
    for name, value, tight, script in tried[2:] if limits.group else tried:
        tight = replace(tight, program=limits.program)
        if value and not (limits.program and _is_stopped(sandbox, tight, script)):
            gaps += (name,)
    return gaps


def _is_stopped(sandbox: Sandbox, limits: ResourceLimits, script: str) -> bool:
    try:
        return _run(sandbox, limits, script).returncode != 0
    except (subprocess.TimeoutExpired, OSError):
        return False


@functools.cache
def _try(sandbox: Sandbox) -> str:
    """Run a probe in the sandbox. Return why that fails, or an empty text."""
    try:
        ended = _run(sandbox, ResourceLimits(), ":")
    except subprocess.TimeoutExpired:
        return f"bubblewrap did not end within {_PROBE_TIMEOUT:g} s"
    except OSError as error:
        return f"bubblewrap could not be started: {error.strerror}"
    if ended.returncode == 0 and read_child(ended.stdout) is not None:
        return ""
    said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else f"bubblewrap ended with exit code {ended.returncode}"


def _run(
    sandbox: Sandbox, limits: ResourceLimits, script: str
) -> subprocess.CompletedProcess[bytes]:
    command = limits.wrap(("/bin/sh", "-c", script))
    return subprocess.run(  # noqa: S603 - the program was found on the server's own path
        (*sandbox.prefix, "--info-fd", "1", "--", *command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_PROBE_TIMEOUT,
        check=False,
        env={},
        cwd="/",
    )


def read_child(told: bytes) -> int | None:
    """Return the process id that leads the sandbox's session, from bubblewrap's status output."""
    try:
        child = json.loads(told)["child-pid"]
    except (ValueError, KeyError, TypeError):
        return None
    return child if isinstance(child, int) and child > 1 else None
