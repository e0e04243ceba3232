"""Rows of whole turns with PostgreSQL, next to other libraries. They need a process of their own: Django knows one database.

`python -m benchmarks.postgres_turns EFFORT` prints them as JSON; the environment names the database.
"""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.measurement import EFFORTS, Effort
from benchmarks.rows import Bar, Row
from benchmarks.site import scratch_site
from scripts.servers import Postgres, passing

ROOT = Path(__file__).resolve().parent.parent
_DATABASE = "BENCHMARK_DATABASE_URL"


def measure(effort: Effort) -> list[Row]:
    """Return the rows, with a PostgreSQL of their own."""
    name = next(name for name, known in EFFORTS.items() if known == effort)
    with passing(Postgres) as postgres:
        postgres.run("CREATE DATABASE turns")
        measured = subprocess.run(
            [sys.executable, "-m", "benchmarks.postgres_turns", name],
            cwd=ROOT,
            env={**os.environ, _DATABASE: postgres.database_url("turns")},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    rows = json.loads(measured.stdout.splitlines()[-1])
    return [Row(**{**row, "bar": Bar(**row["bar"])}) for row in rows]


def main(effort: Effort) -> None:
    """Measure here and print."""
    with scratch_site(os.environ[_DATABASE]) as directory:
        from benchmarks import whole_turns  # noqa: PLC0415 - its models want Django

        rows = asyncio.run(
            whole_turns.measure_turns(
                effort, directory=directory, name="postgres", words="PostgreSQL"
            )
        )
    print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main(EFFORTS[sys.argv[1]])
