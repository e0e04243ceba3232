"""Rows of many clients: the delay of streamed text, and the memory of an idle socket and of a waiting turn."""

import asyncio
import resource
from pathlib import Path

from benchmarks.clients import Tab, User, user_of
from benchmarks.clock_model import hold, stream, times
from benchmarks.size import Size
from benchmarks.table import Row, row_of_times
from tests.faults.site import Site

PIECES_PER_SECOND = 20
# The highest of six runs on a busy machine when the bars were set, rounded up.
MOST_KIBIBYTES_OF_SOCKET = 70
MOST_KIBIBYTES_OF_TURN = 100
_REST = 1.0  # seconds in which a process becomes idle


def streams(site: Site, size: Size, *, server: str) -> Row:
    """Return the row of concurrent streams, which start at different times."""
    delays = asyncio.run(_delays(site, size))
    what = f"piece of text → socket, {size.streams} concurrent streams, {PIECES_PER_SECOND} pieces/s each"
    return row_of_times(what, server, delays, most_p99=150)


def memory(site: Site, size: Size, *, server: str) -> list[Row]:
    """Return the rows of resident memory. The process should be fresh."""
    of_socket, of_turn = asyncio.run(_growth(site, size.sockets))
    return [
        _row_of_memory("an idle socket", server, of_socket, size, most=MOST_KIBIBYTES_OF_SOCKET),
        _row_of_memory("a live turn", server, of_turn, size, most=MOST_KIBIBYTES_OF_TURN),
    ]


async def _delays(site: Site, size: Size) -> list[float]:
    pieces = size.seconds_of_stream * PIECES_PER_SECOND
    async with (
        user_of(site) as user,
        user.tabs(*[await user.converse() for _ in range(size.streams)]) as tabs,
    ):
        async with asyncio.TaskGroup() as turns:
            for tab in tabs:
                turns.create_task(_stream(tab, pieces))
                await asyncio.sleep(1 / size.streams)
        return [
            frame["_at"] - said_at
            for tab in tabs
            for frame in tab.frames
            if frame["type"] == "text_delta"
            for said_at in times(frame["text"])
        ]


async def _stream(tab: Tab, pieces: int) -> None:
    turn_id = await tab.say(stream(pieces, per_second=PIECES_PER_SECOND))
    await tab.until("turn_end", turn_id=turn_id)


async def _growth(site: Site, count: int) -> tuple[float, float]:
    """Return the KiB that each further socket takes, then each further turn, after half as many to warm up."""
    warm_up = count // 2
    async with user_of(site) as user:
        conversations = [await user.converse() for _ in range(warm_up + count)]
        async with user.tabs(*conversations[:warm_up]):
            before = await _resident(site)
            async with user.tabs(*conversations[warm_up:]):
                of_sockets = await _resident(site) - before
        # No tab shows these turns: each tab would also list the tasks of all others of the same person.
        turns = [await _held_turn(user) for _ in range(warm_up)]
        before = await _resident(site)
        turns += [await _held_turn(user) for _ in range(count)]
        of_turns = await _resident(site) - before
        for turn_id in turns:
            await user.cancel(turn_id)
    return of_sockets / count, of_turns / count


async def _held_turn(user: User) -> str:
    turn_id = await user.say(await user.converse(), hold(1))
    await user.until_running(turn_id)
    return turn_id


async def _resident(site: Site) -> float:
    """Return the KiB of the server's resident memory once it is idle."""
    await asyncio.sleep(_REST)
    return await asyncio.to_thread(_resident_now, site.processes["web"].pid)


def _resident_now(pid: int) -> float:
    statm = Path(f"/proc/{pid}/statm").read_text("ascii")
    return int(statm.split()[1]) * resource.getpagesize() / 1024


def _row_of_memory(what: str, server: str, kibibytes: float, size: Size, *, most: float) -> Row:
    return Row(
        what=f"resident memory of {what}, each of {size.sockets}",
        server=server,
        measured=f"{kibibytes:.0f} KiB",
        bar=f"≤ {most:g} KiB",
        is_kept=kibibytes <= most,
    )
