"""The sandbox for commands, which uses bubblewrap if it is installed and works.

Inside the sandbox, a command can write only to the workspace and to a private `/tmp`. It can read the system's
software, but cannot see the server's processes. There is no network unless a setting allows it, and resources are
limited. Everything that a command starts ends when the command or the server ends.
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
    # The server already starts each command in its own session, without a terminal. This inner session separates the
    # command from the sandbox around it, so that signals reach only the command. If the sandbox received a signal, it
    # would end the command without a grace period.
    "--new-session",
    "--die-with-parent",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
)
# A command that cannot create user namespaces has access to less of the kernel. Bubblewrap before 0.8, and a bubblewrap
# that is setuid root, do not support this.
_USER_NAMESPACE = ("--unshare-user", "--disable-userns")
_OLD_USER_NAMESPACE = ("--unshare-user-try",)
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Only these parts of /etc are visible, because it may contain files that only the server's user should read (private
# keys, passwords of services).
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
  [ "$(stat -c %d:%i "$1")" = "$2" ] || { echo "The directory $1 was replaced by another one." >&2; exit 1; }
  shift 2
done
shift
exec "$@"
"""


class Mode(StrEnum):
    """The isolation of commands."""

    BWRAP = "bwrap"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The effective sandbox of commands.

    `problem` explains why bubblewrap does not work although the settings request it. If `is_demanded` is true, no
    command runs without bubblewrap. If `is_roots` is true, the server runs as root, so a command that escaped from the
    sandbox would be root.
    """

    mode: Mode
    program: str = ""
    network: bool = False
    readable: tuple[str, ...] = ()
    problem: str = ""
    is_demanded: bool = False
    is_roots: bool = False
    # Whether programs in the sandbox can be kept from creating user namespaces.
    can_disable_userns: bool = True
    limits: ResourceLimits = field(default_factory=ResourceLimits)

    @property
    def is_trusted(self) -> bool:
        """Whether commands are isolated well enough to run without approval."""
        is_accepted = self.is_demanded or not self.is_roots
        return self.mode is not Mode.NONE and not self.network and is_accepted

    @property
    def is_missing(self) -> bool:
        """Whether commands are refused because the required sandbox does not work."""
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
        writes: bool = True,
    ) -> tuple[str, ...]:
        """Return the command line that runs `arguments` in the sandbox, or `arguments` if there is no sandbox.

        If `writes` is false, the workspace is read-only too. Bubblewrap finds directories by their paths, and a link
        may have replaced one of them. Therefore the command runs only if the directories in the sandbox are the
        intended ones: `identities` maps the path of each directory to its device and inode.
        """
        if self.mode is Mode.NONE:
            return arguments
        if identities:
            pairs = (
                word for path, identity in identities.items() for word in (str(path), identity)
            )
            arguments = ("/bin/sh", "-c", _IDENTIFY, "sh", *pairs, "--", *arguments)
        root = str(workspace)
        return (
            *self.prefix,
            *(
                "--bind" if writes else "--ro-bind",
                root,
                root,
                "--remount-ro",
                "/",
                "--chdir",
                str(directory),
                "--",
            ),
            *self.limits.wrap(arguments),
        )

    @property
    def prefix(self) -> tuple[str, ...]:
        """The start of bubblewrap's command line, without the options for the workspace."""
        visible_paths = (*_SYSTEM, *(f"/etc/{name}" for name in _ETC), *self.readable)
        return (
            self.program,
            *_FLAGS,
            *(_USER_NAMESPACE if self.can_disable_userns else _OLD_USER_NAMESPACE),
            *(() if self.network else ("--unshare-net",)),
            # All of /proc is read-only, because root could otherwise write the kernel's settings in /proc/sys.
            *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"),
            *self.limits.mount("/dev/shm", SHARED_MEMORY),  # noqa: S108 - private to the sandbox
            *("--remount-ro", "/dev"),
            *self.limits.mount("/tmp", self.limits.tmp_size),  # noqa: S108 - private to the sandbox
            *(part for path in visible_paths for part in ("--ro-bind-try", path, path)),
        )


def find_sandbox(settings: ToolboxSettings) -> Sandbox:
    """Return the effective sandbox.

    The first call with given settings starts bubblewrap to test it, so call this in a thread.
    """
    if settings.exec_sandbox is SandboxChoice.NONE:
        return Sandbox(mode=Mode.NONE)
    is_demanded = settings.exec_sandbox is SandboxChoice.BWRAP
    without = functools.partial(Sandbox, mode=Mode.NONE, is_demanded=is_demanded)
    program = shutil.which(_PROGRAM)
    if program is None:
        return without(problem="bubblewrap (bwrap) is not installed")
    sandbox = Sandbox(
        mode=Mode.BWRAP,
        program=program,
        network=settings.exec_network,
        readable=tuple(settings.exec_readable),
        is_demanded=is_demanded,
        is_roots=os.geteuid() == 0,
        limits=_limits(settings),
    )
    problem = _try(sandbox)
    if problem and _try(sandbox := replace(sandbox, can_disable_userns=False)):
        # This may be an older version of bubblewrap, which cannot limit sizes either.
        sandbox = replace(sandbox, limits=replace(sandbox.limits, can_size=False))
        return without(problem=problem) if _try(sandbox) else sandbox
    return sandbox


def sandboxed(arguments: tuple[str, ...], *, readable: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command line that runs one of the server's programs in the sandbox, or `arguments` if none works.

    The program has no network, can write only to its own `/tmp`, and can read only the system's software and
    `readable`. The settings for commands do not affect it. Call this in a thread, because it may start bubblewrap to
    test it.

    Start the program in its own session, and end it by ending its process group, because bubblewrap leaves a child
    behind if only bubblewrap itself is killed during its start.
    """
    sandbox = find_sandbox(ToolboxSettings(exec_sandbox=SandboxChoice.AUTO))
    if sandbox.mode is Mode.NONE:
        return arguments
    sandbox = replace(sandbox, network=False, readable=readable, limits=ResourceLimits())
    # Leave out the inner session, so that all processes stay in one process group.
    prefix = (word for word in sandbox.prefix if word != "--new-session")
    return (*prefix, "--remount-ro", "/", "--chdir", "/", "--", *arguments)


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
    """Return the effective sandbox. Raise `ToolFailed` if a required one does not work."""
    sandbox = find_sandbox(settings)
    if sandbox.is_missing:
        raise ToolFailed(
            "Nothing was run: this server runs commands only in a sandbox, and the sandbox does not work. "
            "An administrator finds the reason with `manage.py check`."
        )
    return sandbox


@functools.cache
def find_gaps(sandbox: Sandbox) -> tuple[str, ...]:
    """Return the names of the limits that have no effect on this machine. This blocks, so call it in a thread."""
    limits = sandbox.limits
    gaps: tuple[str, ...] = ()
    if limits.tmp_size and not limits.can_size:
        gaps = ("the size of /tmp",)
    probes = (
        ("the number of processes", limits.processes, ResourceLimits(processes=1), "(:)"),
        ("memory", limits.memory, ResourceLimits(memory=1 << 16), ":"),
        (
            "the size of files",
            limits.file_size,
            ResourceLimits(file_size=1),
            "echo too much >/tmp/x",
        ),
    )
    for name, value, tight, script in probes[2:] if limits.group else probes:
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
    """Run a probe in the sandbox. Return the reason if it fails, and otherwise an empty string."""
    try:
        process = _run(sandbox, ResourceLimits(), ":")
    except subprocess.TimeoutExpired:
        return f"bubblewrap did not end within {_PROBE_TIMEOUT:g} s"
    except OSError as error:
        return f"bubblewrap could not be started: {error.strerror}"
    if process.returncode == 0 and read_child(process.stdout) is not None:
        return ""
    error_lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
    return (
        error_lines[-1] if error_lines else f"bubblewrap ended with exit code {process.returncode}"
    )


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


def read_child(status: bytes) -> int | None:
    """Return the process id of the sandbox's session leader from bubblewrap's status output, or `None`."""
    try:
        child = json.loads(status)["child-pid"]
    except (ValueError, KeyError, TypeError):
        return None
    return child if isinstance(child, int) and child > 1 else None
