"""Rows of growth: what a turn and a look take in a long conversation, and after a long past."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from benchmarks.clock_model import CALL, NOW
from benchmarks.measurement import Effort, Spread, Timed, spread_of
from benchmarks.planting import plant_into
from benchmarks.progress import say
from benchmarks.rows import NO_BAR, Bar, Row, latency
from benchmarks.sites import timed_of
from tests.bulk_history import BulkHistory
from tests.faults.client import Client, WebSocketClient
from tests.faults.site import Site

MESSAGES_OF_A_TURN = 3  # a question, a call, an answer
TURNS_EACH = 10
PATIENCE = 120.0
BAR_LONG = Bar(most_ratio=1.3)
_OF_PAST = 100_000_000  # where the ids of the long past begin
_TURN = "POST of a message → `turn_end`"
_LOOK = "GET of the list, then the snapshot of one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A site that can be planted: how its processes are started again, and how its rows are called."""

    site: Site
    start: Callable[[], object]
    name: str
    what: str

    def insert_history(self, template: UUID, pasts: Iterable[BulkHistory]) -> None:
        """Plant while nobody is at work: a server that does not get to its database lets its turns go."""
        for process in self.site.processes.values():
            process.kill()
        plant_into(self.site, template, pasts)
        self.start()


def of_lengths(ground: Ground, effort: Effort) -> list[Row]:
    """Return the rows of conversations, from the shortest to the longest."""
    pasts = {
        count: BulkHistory(
            conversations=1,
            turns_each=max(round(count / MESSAGES_OF_A_TURN), 1),
            first=number * 1_000_000,
        )
        for number, count in enumerate(effort.messages)
    }
    ground.insert_history(_template(ground.site), pasts.values())
    conversations = {count: str(history.conversation_id()) for count, history in pasts.items()}
    measured = _measure(ground.site, conversations, effort.clicks)
    smallest = measured[effort.messages[0]]
    rows: list[Row] = []
    for count, times in measured.items():
        row_id, what = f"messages_{count}", f"after {count:,} messages"
        rows += times.rows(row_id, what, bare=smallest, bar=BAR_LONG)
        first = f"{_TURN}, {what}, the first one after a start of the server"
        rows.append(latency(f"{row_id}_first", first, times.first, bare=smallest.first))
    return rows


def of_pasts(ground: Ground, effort: Effort) -> list[Row]:
    """Return the rows of databases, from the youngest to the oldest."""
    template = _template(ground.site)
    there, rows, smallest = 0, list[Row](), None
    for count in effort.finished:
        say(f"{count:,} finished turns, {ground.what}")
        added = (count - there) // TURNS_EACH
        history = BulkHistory(conversations=added, turns_each=TURNS_EACH, first=_OF_PAST + there)
        ground.insert_history(template, [history])
        there = count
        [times] = _measure(
            ground.site, {count: ground.site.client().converse()}, effort.clicks
        ).values()
        smallest = smallest or times
        what = f"{count:,} finished turns, {ground.what}"
        rows += times.rows(f"finished_{count}_{ground.name}", what, bare=smallest)
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    turn: Spread
    look: Spread
    first: Spread  # turn

    def rows(self, row_id: str, what: str, *, bare: "_Times", bar: Bar = NO_BAR) -> list[Row]:
        return [
            latency(row_id, f"{_TURN}, {what}", self.turn, bare=bare.turn, bar=bar),
            latency(f"{row_id}_look", f"{_LOOK}, {what}", self.look, bare=bare.look),
        ]


def _template(site: Site) -> UUID:
    client = site.client()
    conversation = client.converse()
    client.until_ended(client.say(conversation, CALL), within=PATIENCE)
    return UUID(conversation)


def _measure(site: Site, conversations: dict[int, str], rounds: int) -> dict[int, _Times]:
    """Run a turn in each conversation, round by round, and look at each. The first round warms up and counts apart.

    CPU times are those of the site's processes, up to their rest.
    """
    client = site.client()
    turns: dict[int, list[Timed]] = {count: [] for count in conversations}
    looks: dict[int, list[Timed]] = {count: [] for count in conversations}
    for _ in range(rounds + 1):
        for count, conversation in conversations.items():
            looks[count].append(timed_of(site, partial(_look, site, client, conversation)))
            watcher = site.watch(conversation, within=PATIENCE)
            turn = partial(_turn, client, watcher, conversation)
            turns[count].append(timed_of(site, turn))
            watcher.leave()
    return {
        count: _Times(
            turn=spread_of(turns[count][1:]),
            look=spread_of(looks[count][1:]),
            first=spread_of(turns[count][:1]),
        )
        for count in conversations
    }


def _look(site: Site, client: Client, conversation: str) -> float:
    asked_at = time.monotonic()
    assert client.get("/api/conversations").is_success
    watcher = site.watch(conversation, within=PATIENCE)
    took = time.monotonic() - asked_at
    watcher.leave()
    return took


def _turn(client: Client, watcher: WebSocketClient, conversation: str) -> float:
    asked_at = time.monotonic()
    turn_id = client.say(conversation, NOW)
    received: float = watcher.until("turn_end", turn_id=turn_id, within=PATIENCE)["_received"]
    return received - asked_at
