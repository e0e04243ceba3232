"""A snapshot of the database of a site: all its rows as plain values."""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import environ
from django.apps import apps
from django.db import connections, transaction

from config.databases import SQLITE_OPTIONS

ACTIVE = ("queued", "running", "cancelling")
LIVE = ("running", "cancelling")

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class DatabaseSnapshot:
    """The rows of a site, as mappings of their fields."""

    conversations: Sequence[Row] = ()
    turns: Sequence[Row] = ()
    events: Sequence[Row] = ()
    messages: Sequence[Row] = ()
    calls: Sequence[Row] = ()
    requests: Sequence[Row] = ()
    repairs: Sequence[Row] = ()
    processes: Sequence[Row] = ()

    @cached_property
    def turns_by_id(self) -> Mapping[str, Row]:
        """The turns by their ids."""
        return {str(turn["id"]): turn for turn in self.turns}

    @cached_property
    def log_by_conversation(self) -> Mapping[str, list[Row]]:
        """The events of each conversation in the order of their numbers."""
        return _grouped(sorted(self.events, key=lambda event: event["seq"]), "conversation_id")

    @cached_property
    def log_by_turn(self) -> Mapping[str, list[Row]]:
        """The events of each turn in the order of their numbers."""
        return _grouped(sorted(self.events, key=lambda event: event["seq"]), "turn_id")

    @cached_property
    def calls_by_turn(self) -> Mapping[str, list[Row]]:
        """The tool calls of each turn."""
        return _grouped(self.calls, "group")

    def turn(self, turn_id: str) -> Row:
        """Return one turn."""
        return self.turns_by_id[turn_id]

    def calls_of(self, turn_id: str) -> list[Row]:
        """Return the calls of one turn."""
        return self.calls_by_turn.get(turn_id, [])

    def cancel_seconds(self, turn_id: str) -> float:
        """Return how long the cancel of a turn has taken up to its end, by the database's clock."""
        [request] = [
            row for row in self.requests if str(row["turn_id"]) == turn_id and not row["tool_id"]
        ]
        return float(request["settled_ms"]) / 1000

    def owner_pid(self, turn_id: str) -> int:
        """Return the pid of the process that owns a turn; 0 if none does."""
        owner = self.turn(turn_id)["owner_id"]
        return next((row["pid"] for row in self.processes if row["id"] == owner), 0)


def read(url: str) -> DatabaseSnapshot:
    """Read a site's tables; the connection is made for it and given up again."""
    with connected(url) as alias, transaction.atomic(using=alias):
        return DatabaseSnapshot(
            conversations=_rows(alias, "turns", "Conversation"),
            turns=_rows(alias, "turns", "Turn"),
            events=_rows(alias, "turns", "Event"),
            messages=_rows(alias, "turns", "Message"),
            calls=_rows(alias, "governance", "ToolCall"),
            requests=_rows(alias, "turns", "CancelRequest"),
            repairs=_rows(alias, "turns", "Repair"),
            processes=_rows(alias, "turns", "Process"),
        )


def keys(url: str, app: str, model: str, **fields: Any) -> list[Any]:
    """Return the keys of the rows with these fields, without reading anything else."""
    with connected(url) as alias:
        rows = apps.get_model(app, model)._default_manager.using(alias)
        return list(rows.filter(**fields).values_list("pk", flat=True))


def save(url: str, app: str, model: str, *, pk: int, **fields: Any) -> None:
    """Write one row of a site."""
    with connected(url, writes=True) as alias:
        rows = apps.get_model(app, model)._default_manager.using(alias)
        rows.update_or_create(pk=pk, defaults=fields)


def _rows(alias: str, app: str, model: str) -> list[Row]:
    return list(apps.get_model(app, model)._default_manager.using(alias).order_by("pk").values())


@contextmanager
def connected(url: str, *, writes: bool = False) -> Iterator[str]:
    """Add the database to Django's for a moment, under a name that no other thread uses."""
    alias = f"site_under_test_{threading.get_ident()}"
    options: dict[str, Any] = {}
    if writes and url.startswith("sqlite"):
        options = SQLITE_OPTIONS  # who reads first cannot wait for his turn to write
    elif not writes and url.startswith("postgres"):
        options = {"isolation_level": 3}  # repeatable read: all tables as of one moment
    connections.settings[alias] = {
        **connections.settings["default"],
        **environ.Env.db_url_config(url),
        "OPTIONS": options,
        "TEST": {"MIGRATE": False, "MIRROR": None, "NAME": None},
    }
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


def _grouped(rows: Sequence[Row], field: str) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[str(row[field])].append(row)
    return found
