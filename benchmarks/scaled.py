"""Rows of the way through processes: from a click to the chat model, from a cancel to the end."""

import time
from collections.abc import Callable
from functools import partial

from benchmarks.clock_model import HOLD, NOW, moments
from benchmarks.measurement import Effort, Spread, Timed, spread_of
from benchmarks.rows import NO_BAR, Bar, Row, latency
from benchmarks.sites import timed_of
from scripts.servers import Redis
from tests.faults.client import Client, WebSocketClient
from tests.faults.site import Site

BAR_CLICK = Bar(most=15)
BAR_HEARD = Bar(most=1000, most_p99=50)
PATIENCE = 60.0

Ended = Callable[[Site, Client, str, str], Timed]


def measure_embedded(site: Site, effort: Effort, click: Spread) -> list[Row]:
    """Return the rows of one process: of its clicks, which are measured, and of cancels."""
    seen = _cancels(site, effort.clicks, _seen)
    return [
        click_row("embedded", "one process, SQLite", click, bar=BAR_CLICK),
        _cancel_row("embedded", "one process, SQLite, over HTTP", seen),
    ]


def measure(site: Site, redis: Redis, effort: Effort, *, embedded: Spread | None) -> list[Row]:
    """Return the rows of a web process and a runner; Redis is stopped in the end."""
    rows = [
        click_row(
            "scaled",
            "web process and runner, PostgreSQL; bare: one process",
            clicks(site, effort.clicks),
            embedded=embedded,
        )
    ]
    heard = _cancels(site, effort.clicks, _seen)
    rows.append(_cancel_row("heard", "runner, told by Redis", heard, bar=BAR_HEARD))
    dead = _cancels(site, effort.lost, _seen, kills=True)
    rows.append(_cancel_row("dead", "its runner was killed (kill -9, same host)", dead))
    site.run_turns()
    redis.crash()
    lost = _cancels(site, effort.lost, _stored)
    rows.append(_cancel_row("lost", "runner, Redis is down: by the next poll", lost))
    return rows


def click_row(
    name: str, words: str, measured: Spread, *, embedded: Spread | None = None, bar: Bar = NO_BAR
) -> Row:
    """Return the row of a click."""
    what = f"POST of a message → request to the chat model, {words}"
    return latency(f"click_{name}", what, measured, bare=embedded, bar=bar)


def clicks(site: Site, count: int) -> Spread:
    """Say something so often; the first time warms up and does not count. The CPU time is that of the whole turn."""
    client = site.client()
    conversation = client.converse()
    watcher = site.watch(conversation)
    click = partial(_click, client, watcher, conversation)
    return spread_of([timed_of(site, click) for _ in range(count + 1)][1:])


def _click(client: Client, watcher: WebSocketClient, conversation: str) -> float:
    asked_at = time.monotonic()
    turn_id = client.say(conversation, NOW)
    watcher.until("turn_end", turn_id=turn_id, within=PATIENCE)
    delta = watcher.until("text_delta", turn_id=turn_id)
    return moments(delta["text"])[0] - asked_at


def _cancels(site: Site, count: int, ended: Ended, *, kills: bool = False) -> Spread:
    """Cancel turns while their tool runs, by the connection that they were begun with; the first one does not count."""
    client = site.client()
    delays = []
    for number in range(count + 1):
        if kills and number:
            site.run_turns()
        conversation = client.converse()
        turn_id = client.say(conversation, HOLD)
        client.until_running(turn_id, "affect", within=PATIENCE)
        delays.append(
            ended(site, client, conversation, turn_id)
            if not kills
            else _killed(site, client, conversation, turn_id)
        )
    return spread_of(delays[1:])


def _killed(site: Site, client: Client, conversation: str, turn_id: str) -> Timed:
    watcher = site.watch(conversation)
    site.processes["runner"].kill()
    return _cancel(site, client, watcher, turn_id)


def _seen(site: Site, client: Client, conversation: str, turn_id: str) -> Timed:
    return _cancel(site, client, site.watch(conversation), turn_id)


def _cancel(site: Site, client: Client, watcher: WebSocketClient, turn_id: str) -> Timed:
    def until_told() -> float:
        asked_at = time.monotonic()
        client.cancel(turn_id)
        received: float = watcher.until("turn_end", turn_id=turn_id, within=PATIENCE)["_received"]
        return received - asked_at

    took = timed_of(site, until_told)
    watcher.leave()
    return took


def _stored(site: Site, client: Client, _conversation: str, turn_id: str) -> Timed:
    """Without messages a socket learns of the end by its own look at the log, so what is stored counts."""

    def until_stored() -> float:
        asked_at = time.monotonic()
        client.cancel(turn_id)
        client.until_ended(turn_id, within=PATIENCE)
        return time.monotonic() - asked_at

    return timed_of(site, until_stored)


def _cancel_row(name: str, words: str, measured: Spread, *, bar: Bar | None = None) -> Row:
    what = f"cancel → `turn_end`, {words}"
    return latency(f"cancel_{name}", what, measured, bar=bar or Bar())
