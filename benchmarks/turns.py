"""Rows of single turns: from a message to the chat model, from a cancel to the end, in a long conversation."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from benchmarks.clients import Tab, user_of
from benchmarks.clock_model import NOW, call, hold, times
from benchmarks.sites import run
from benchmarks.size import Size
from benchmarks.table import Row, row_of_times
from tests.faults.site import Site

MESSAGES_OF_A_TURN = 3  # a question, a call, an answer
MOST_GROWTH = 1.3


def message_to_model(site: Site, size: Size, *, server: str) -> Row:
    """Return the row of the time between a click and the turn's first request to the chat model."""
    what = "POST of a message → request to the chat model"
    seconds = asyncio.run(_repeat(site, _message_to_model, count=size.turns))
    return row_of_times(what, server, seconds, most_median=50)


def cancel_to_end(site: Site, size: Size, *, server: str, most_p99: float) -> Row:
    """Return the row of a turn that is cancelled while its call runs."""
    seconds = asyncio.run(_repeat(site, _cancel_to_end, count=size.turns))
    return row_of_times("cancel → `turn_end`", server, seconds, most_p99=most_p99)


def many_calls_to_end(site: Site, size: Size, *, server: str) -> Row:
    """Return the row of turns that are cancelled together, while many calls run in them."""
    seconds = asyncio.run(_many_calls_to_end(site, size))
    what = f"cancels → last `turn_end`, {size.turns_at_once} turns with {size.calls_of_each} running calls each"
    return row_of_times(what, server, seconds, most_p99=1000)


def long_conversation(site: Site, size: Size, *, server: str) -> Row:
    """Return the row of a turn after many messages next to one after few."""
    template = asyncio.run(_template(site))
    site.processes["web"].kill()
    planted = [
        run(
            site,
            *("-m", "benchmarks.planting", "conversation"),
            *(template, str(round(messages / MESSAGES_OF_A_TURN))),
        ).strip()
        for messages in size.messages
    ]
    site.serve()
    few, many = asyncio.run(_turns_in(site, planted, count=size.turns))
    ratio = many / few
    return Row(
        what=f"a turn after {size.messages[1]:,} messages, next to one after {size.messages[0]}",
        server=server,
        measured=f"{ratio:.2f} × (medians {1000 * many:.0f} and {1000 * few:.0f} ms, n = {size.turns})",
        bar=f"≤ {MOST_GROWTH} ×",
        is_kept=ratio <= MOST_GROWTH,
    )


async def _repeat(
    site: Site, measure: Callable[[Tab], Awaitable[float]], *, count: int
) -> list[float]:
    """Measure one after the other in one conversation; the first one warms up and is left out."""
    async with user_of(site) as user, user.tabs(await user.converse()) as [tab]:
        return [await measure(tab) for _ in range(count + 1)][1:]


async def _message_to_model(tab: Tab) -> float:
    clicked_at = time.monotonic()
    turn_id = await tab.say(NOW)
    answer = await tab.until("text_delta", turn_id=turn_id)
    await tab.until("turn_end", turn_id=turn_id)
    return times(answer["text"])[0] - clicked_at


async def _cancel_to_end(tab: Tab) -> float:
    turn_id = await _held_turn(tab, calls=1)
    clicked_at = time.monotonic()
    return await _cancel(tab, turn_id) - clicked_at


async def _many_calls_to_end(site: Site, size: Size) -> list[float]:
    async with (
        user_of(site) as user,
        user.tabs(*[await user.converse() for _ in range(size.turns_at_once)]) as tabs,
    ):
        seconds = []
        for _ in range(5):
            turn_ids = [await _held_turn(tab, calls=size.calls_of_each) for tab in tabs]
            clicked_at = time.monotonic()
            ends = await asyncio.gather(*map(_cancel, tabs, turn_ids))
            seconds.append(max(ends) - clicked_at)
        return seconds


async def _held_turn(tab: Tab, *, calls: int) -> str:
    turn_id = await tab.say(hold(calls))
    await tab.until("tool_start", count=calls, turn_id=turn_id)
    return turn_id


async def _cancel(tab: Tab, turn_id: str) -> float:
    """Cancel a turn and return the time at which its end arrived."""
    await tab.cancel(turn_id)
    return float((await tab.until("turn_end", turn_id=turn_id))["_at"])


async def _template(site: Site) -> str:
    """Return a conversation with one turn, from which a long one is planted."""
    async with user_of(site) as user, user.tabs(await user.converse()) as [tab]:
        await tab.until("turn_end", turn_id=await tab.say(call(1)))
        return tab.conversation


async def _turns_in(site: Site, conversations: list[str], *, count: int) -> list[float]:
    """Return the median time of a turn in each conversation, alternating. The first turn reads the history and is left out."""
    seconds: dict[str, list[float]] = {conversation: [] for conversation in conversations}
    async with user_of(site) as user, user.tabs(*conversations) as tabs:
        for _ in range(count + 1):
            for tab in tabs:
                clicked_at = time.monotonic()
                turn_id = await tab.say(NOW)
                end = await tab.until("turn_end", turn_id=turn_id)
                seconds[tab.conversation].append(end["_at"] - clicked_at)
    return [statistics.median(values[1:]) for values in seconds.values()]
