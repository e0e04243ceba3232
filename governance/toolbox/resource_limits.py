"""The resource limits of a command.

They are set inside the command's sandbox, where the other processes of the same user are not counted.
"""

import shutil
import signal
from dataclasses import dataclass

_PROGRAM = "prlimit"  # part of util-linux
# If a signal ends the program, shells and bubblewrap exit with this plus its number.
_SIGNAL_BASE = 128
_MORE_CPU = 5  # seconds of CPU time between SIGXCPU, which can be handled, and SIGKILL
_XCPU, _XFSZ = signal.SIGXCPU, signal.SIGXFSZ
SHARED_MEMORY = 64_000_000  # bytes of /dev/shm, as in most containers


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """The resource limits of a command in bytes and seconds; 0 means no limit.

    Memory and CPU time are limited for each process, and `processes` includes threads. The program `program` sets the
    limits. Without it, only `tmp_size` has an effect, and only if bubblewrap can limit sizes (`can_size`). In the
    control group `group`, memory is limited for all processes together, including /tmp and cached files.
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
        """Return the command line that sets the limits and then runs `arguments`."""
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
        """Return bubblewrap's options for a directory that is kept in memory and limited to `size` bytes."""
        sized = ("--size", str(size)) if size and self.can_size else ()
        return (*sized, "--tmpfs", path)

    @property
    def description(self) -> str:
        """The effective limits as text for people and models, which is empty if there are none."""
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
        """Return a sentence if the exit status and output suggest that a limit was reached, else an empty string."""
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
    """Return the path of the program that sets limits, or an empty string if it is not installed."""
    return shutil.which(_PROGRAM) or ""


def _bytes(size: int) -> str:
    for factor, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"
