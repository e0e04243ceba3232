"""The resource limits of a command, set inside its sandbox, where the user's other processes are not counted."""

import shutil
import signal
from dataclasses import dataclass

_PROGRAM = "prlimit"  # of util-linux
_SIGNAL_BASE = 128  # how shells, and bubblewrap, report a death by a signal
_MORE_CPU = 5  # seconds between the signal that can be handled and SIGKILL
_XCPU, _XFSZ = signal.SIGXCPU, signal.SIGXFSZ
SHARED_MEMORY = 64_000_000  # bytes of /dev/shm, as in most containers


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """Bytes and seconds; 0 = no limit. Memory and CPU time are per process; `processes` includes threads.

    `program` sets them. Without it only `tmp_size` works, and only if bubblewrap `can_size`. In a control group
    `group`, memory is limited for all processes together, including /tmp and cached files.
    """

    processes: int = 0
    memory: int = 0
    file_size: int = 0
    tmp_size: int = 0
    cpu_time: int = 0
    program: str = ""
    can_size: bool = True
    group: str = ""

    def wrap(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command line that sets the limits, then runs `arguments`."""
        values = (
            ("nproc", self.processes, self.processes),
            ("data", self.memory, self.memory),
            ("fsize", self.file_size, self.file_size),
            ("cpu", self.cpu_time, self.cpu_time + _MORE_CPU),
        )
        options = tuple(f"--{name}={soft}:{hard}" for name, soft, hard in values if soft)
        return (
            (self.program, *options, "--core=0:0", "--", *arguments) if self.program else arguments
        )

    def mount(self, path: str, size: int) -> tuple[str, ...]:
        """Return bubblewrap's options for a directory in memory of at most `size` bytes."""
        sized = ("--size", str(size)) if size and self.can_size else ()
        return (*sized, "--tmpfs", path)

    @property
    def description(self) -> str:
        """The effective limits as text for people and models; empty if there are none."""
        parts = [f"/tmp {_bytes(self.tmp_size)}"] if self.tmp_size and self.can_size else []  # noqa: S108
        if self.program:
            parts = [
                description
                for value, description in (
                    (self.processes, f"{self.processes} processes and threads at once"),
                    (
                        self.memory,
                        f"{_bytes(self.memory)} of memory{'' if self.group else ' for each'}",
                    ),
                    (self.cpu_time, f"{self.cpu_time} s of processor time for each"),
                    (self.file_size, f"files up to {_bytes(self.file_size)}"),
                )
                if value
            ] + parts
        return ", ".join(parts)

    def explain(self, status: int, text: str) -> str:
        """Return a sentence if this exit status and output suggest that a limit was hit; else nothing."""
        is_likely = any(
            limit and (status == _SIGNAL_BASE + number or any(sign in text for sign in signs))
            for limit, number, signs in (
                (self.cpu_time, _XCPU, ("CPU time limit exceeded",)),
                (self.file_size, _XFSZ, ("File too large", "File size limit exceeded")),
                (self.processes, 0, ("Resource temporarily unavailable", "Cannot fork")),
                (self.memory, 0, ("annot allocate", "MemoryError", "ut of memory", "bad_alloc")),
                (self.tmp_size, 0, ("No space left on device",)),
            )
        )
        return (
            f"It may have reached a limit. A command has: {self.description}."
            if is_likely and self.description
            else ""
        )


def find_limiter() -> str:
    """Return the path of the program that sets limits; empty without one."""
    return shutil.which(_PROGRAM) or ""


def _bytes(size: int) -> str:
    for factor, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"
