"""Where the output of a worker's tools goes: what Python code prints or logs to the server's stderr, bounded."""

import io
import os
import sys

_PER_CALL = 64_000  # bytes
_DROPPED = b"\n[the rest of this call's output was dropped]\n"


class BoundedOutput(io.RawIOBase):
    """Passes on so much for each call and no more: a flood of prints shall not fill the server's log."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._left = _PER_CALL

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """Return where a child of the tool may write: stdout, which leads nowhere."""
        return 1

    def write(self, content: "bytes | memoryview") -> int:  # type: ignore[override]  # io asks for Buffer, 3.12
        """Write what fits the limit; report once when it does not."""
        if self._left > 0:
            os.write(self._target, bytes(content[: self._left]))
            self._left -= len(content)
            if self._left <= 0:
                os.write(self._target, _DROPPED)
        return len(content)

    def renew(self) -> None:
        """Start a new call's allowance."""
        self._left = _PER_CALL


def redirect_output() -> BoundedOutput:
    """Redirect stdout and stderr of this process; direct writes to the descriptors are dropped."""
    output = BoundedOutput(os.dup(2))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.close(silence)
    sys.stdout = sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(output), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    return output
