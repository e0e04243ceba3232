"""Says what is being measured, and how long the run has taken so far."""

import sys
import time

_began = time.monotonic()


def say(part: str) -> None:
    """Print one line to the standard error."""
    minutes, seconds = divmod(int(time.monotonic() - _began), 60)
    print(f"{minutes:2}:{seconds:02}  {part}", file=sys.stderr, flush=True)
