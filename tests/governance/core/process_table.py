"""The process table as the tests see it, and bounded waits for what it shall show."""

import asyncio
from pathlib import Path


def runs(pid):
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def tagged(tag):
    """The pids that carry an environment entry."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if tag.encode() in environment:
                found.append(int(entry.name))
    return found


async def until(condition, *, within=10.0):
    """Wait until `condition()` holds; fail when it does not in time."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - nothing tells us of other processes
            await asyncio.sleep(0.002)
