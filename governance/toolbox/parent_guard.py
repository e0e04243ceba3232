"""Ends a command's process group when the server dies (C4).

A sandbox does that itself; this is for commands without one. A guard, a small shell in the command's group, waits for
the pipe to the server to close and then ends the group. When the command has ended by itself, the guard leaves, and
background processes may continue.
"""

import os
from contextlib import suppress

# The guard is forked twice, so that a command which waits for its children does not meet it. It takes its pipe as
# descriptor 3: a shell gives background jobs no stdin; the command's own input is empty.
_SCRIPT = (
    "exec 3<&0 </dev/null; "
    "( ( read -r told <&3 && exit; kill -KILL 0 ) >/dev/null 2>&1 & ); "
    'exec 3<&-; exec "$@"'
)


class ParentGuard:
    """The pipe to the guard of one command."""

    def __init__(self) -> None:
        self.input, self._ours = os.pipe()
        os.set_blocking(self._ours, False)

    @staticmethod
    def wrap(arguments: tuple[str, ...]) -> tuple[str, ...]:
        """Return the arguments of a command that starts a guard first; `input` must be its stdin."""
        return ("/bin/sh", "-c", _SCRIPT, "sh", *arguments)

    def started(self) -> None:
        """Give up the end that is the guard's."""
        os.close(self.input)

    def cut(self, *, spare: bool) -> None:
        """Release the guard: `spare` the group, or end the rest of it."""
        if spare:
            with suppress(OSError):  # the guard was ended with its group
                os.write(self._ours, b"\n")
        os.close(self._ours)
