"""Rows of the disk: nobody who waits for it can be faster. Measured in the same run as all others."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks.measurement import Effort, Spread, Timed, spread_of
from benchmarks.rows import Row, latency

_BLOCK = b"x" * 4096


def measure(effort: Effort, *, directory: Path) -> list[Row]:
    """Return the rows of a directory's disk."""
    return [
        latency("disk_sync", "the disk: `fdatasync` of 4 KiB", _syncs(effort.turns, directory)),
        latency(
            "disk_commit",
            "the disk: a commit of one row, SQLite with WAL and a sync for each",
            _commits(effort.turns, directory),
        ),
    ]


def _syncs(count: int, directory: Path) -> Spread:
    with (directory / "floor").open("wb", buffering=0) as file:

        def write() -> None:
            file.write(_BLOCK)
            os.fdatasync(file.fileno())

        return _measured(write, count)


def _commits(count: int, directory: Path) -> Spread:
    with closing(sqlite3.connect(directory / "floor.sqlite3", isolation_level=None)) as connection:
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE row (id INTEGER PRIMARY KEY, text TEXT)",
        ):
            connection.execute(statement)

        def commit() -> None:
            connection.execute("INSERT INTO row (text) VALUES ('a row')")

        return _measured(commit, count)


def _measured(write: Callable[[], None], count: int) -> Spread:
    times = []
    for _ in range(count):
        began, computed = time.perf_counter(), time.process_time()
        write()
        times.append(Timed(wall=time.perf_counter() - began, cpu=time.process_time() - computed))
    return spread_of(times)
