"""An export of a million calls takes no memory that grows with it, whichever server sends it."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.processes import Process

CALLS = 1_000_000
EXPORT = "/admin/governance/toolcall/export/csv/"
MOST_GROWTH = 40  # MiB; the file has hundreds
SERVERS = {"serve": Site.serve, "uvicorn": Site.serve_uvicorn}

pytestmark = pytest.mark.long


def peak(process: Process) -> float:
    """The most memory that a process has had since `forget_peak`, in MiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    [kibibytes] = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return int(kibibytes) / 1024


def forget_peak(process: Process) -> None:
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def multiply_calls(file: Path) -> None:
    """Copy the one call of a site until there are as many as wanted."""
    with closing(sqlite3.connect(file)) as database, database:
        columns = [
            name for _, name, *_ in database.execute("PRAGMA table_info(governance_toolcall)")
        ]
        values = {name: f'"{name}"' for name in columns if name != "id"}
        values["call_id"] = "'copy-' || n"
        # One a second: an export goes on along the time, as calls of a real site do.
        values["requested_at"] = (
            "strftime('%Y-%m-%d %H:%M:%f', requested_at, '-' || n || ' seconds') || '000'"
        )
        names = ", ".join(f'"{name}"' for name in values)
        numbers = f"WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < {CALLS})"
        database.execute(
            f"INSERT INTO governance_toolcall ({names}) {numbers}"
            f" SELECT {', '.join(values.values())} FROM numbers CROSS JOIN governance_toolcall"
        )


@pytest.mark.timeout(1800)  # a busy machine writes some thousand rows in a second
@pytest.mark.parametrize("serve", SERVERS.values(), ids=SERVERS.keys())
def test_memory_is_flat_at_a_million_rows(embedded: MakeSite, serve: Callable[[Site], Process]):
    site = embedded()
    process = serve(site)
    client = site.client()
    conversation = client.converse()
    client.until_ended(client.say(conversation, "list"))
    process.kill()
    multiply_calls(site.var / "db.sqlite3")
    process = serve(site)
    reader = site.administrator()
    with reader.download(
        EXPORT, when="any"
    ) as parts:  # what is loaded once is no part of the export
        next(parts)
    forget_peak(process)
    before = peak(process)
    rows = size = 0
    with reader.download(EXPORT, when="any") as parts:
        for part in parts:
            rows += part.count(b"\r\n")
            size += len(part)
    assert rows > CALLS
    assert size > 2 * MOST_GROWTH * 1024 * 1024
    assert peak(process) - before < MOST_GROWTH
