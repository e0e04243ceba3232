"""Rows of growth: what a turn takes in a long conversation, and in a database with a long past."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from uuid import UUID

from benchmarks.clock_model import CALL, NOW
from benchmarks.measurement import Effort, Spread, spread
from benchmarks.rows import Row, latency
from tests.faults.client import Client, Watcher
from tests.faults.site import Site
from tests.past import Past, plant

MESSAGES_OF_A_TURN = 3  # a question, a call, an answer
TURNS_EACH = 10
PATIENCE = 120.0
_OF_PAST = 100_000_000  # where the ids of the long past begin


def measure(site: Site, effort: Effort) -> list[Row]:
    """Return the rows: of conversations, then of databases."""
    template = _template(site)
    lengths = {
        count: Past(
            conversations=1,
            turns_each=max(round(count / MESSAGES_OF_A_TURN), 1),
            first=number * 1_000_000,
        )
        for number, count in enumerate(effort.messages)
    }
    _plant(site, template, list(lengths.values()))
    conversations = {count: str(past.conversation_id()) for count, past in lengths.items()}
    measured = _in_turn(site, conversations, effort.clicks)
    shortest = measured[effort.messages[0]]
    rows = [
        latency(
            f"messages_{count}",
            f"POST of a message → `turn_end`, after {count:,} messages",
            of_length,
            bare=shortest,
        )
        for count, of_length in measured.items()
    ]
    return rows + _of_pasts(site, template, effort)


def _of_pasts(site: Site, template: UUID, effort: Effort) -> list[Row]:
    there, rows, smallest = 0, list[Row](), None
    for count in effort.finished:
        past = Past(
            conversations=(count - there) // TURNS_EACH,
            turns_each=TURNS_EACH,
            first=_OF_PAST + there,
        )
        _plant(site, template, [past])
        there = count
        [measured] = _in_turn(site, {count: site.client().converse()}, effort.clicks).values()
        smallest = smallest or measured
        what = f"POST of a message → `turn_end`, {count:,} finished turns in the database"
        rows.append(latency(f"finished_{count}", what, measured, bare=smallest))
    return rows


def _template(site: Site) -> UUID:
    client = site.client()
    conversation = client.converse()
    client.until_ended(client.say(conversation, CALL), within=PATIENCE)
    return UUID(conversation)


def _plant(site: Site, template: UUID, pasts: list[Past]) -> None:
    """Plant while nobody is at work: it takes long, and a server without its database lets its turns go."""
    site.processes["web"].kill()
    with closing(sqlite3.connect(Path(site.var) / "db.sqlite3")) as connection:
        for past in pasts:
            plant(connection.execute, "sqlite", template, past)
        connection.commit()
    site.serve()


def _in_turn(site: Site, conversations: dict[int, str], rounds: int) -> dict[int, Spread]:
    """Run a turn in each conversation, round by round; the first round warms up and does not count."""
    client = site.client()
    watchers = {count: site.watch(key) for count, key in conversations.items()}
    seconds: dict[int, list[float]] = {count: [] for count in conversations}
    for _ in range(rounds + 1):
        for count, conversation in conversations.items():
            seconds[count].append(_turn(client, watchers[count], conversation))
    for watcher in watchers.values():
        watcher.leave()
    return {count: spread(values[1:]) for count, values in seconds.items()}


def _turn(client: Client, watcher: Watcher, conversation: str) -> float:
    asked_at = time.monotonic()
    turn_id = client.say(conversation, NOW)
    received: float = watcher.until("turn_end", turn_id=turn_id, within=PATIENCE)["_received"]
    return received - asked_at
