"""Ties a command's process group to the life of the server: it dies, the group dies (C4).

A sandbox does that by itself; this is for commands without one. A guard, a tiny shell in the command's group, waits for
the pipe to the server to close and then ends the group. It is told to leave when the command has ended by itself, so
what the command has put in the background goes on, as it may.
"""

import os
from contextlib import suppress

# The guard is forked twice, so that a command which waits for its children does not meet it. It takes its pipe as
# descriptor 3, since a shell gives what it starts in the background no input; the command's own input is empty.
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
        """Return the arguments of a command that leaves a guard before it begins; `input` has to be its stdin."""
        return ("/bin/sh", "-c", _SCRIPT, "sh", *arguments)

    def started(self) -> None:
        """Give up the end that is the guard's."""
        os.close(self.input)

    def cut(self, *, spare: bool) -> None:
        """Let the guard go: to `spare` the group, or to end what is left of it."""
        if spare:
            with suppress(OSError):  # the guard was ended with its group
                os.write(self._ours, b"\n")
        os.close(self._ours)
