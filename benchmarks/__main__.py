"""`python -m benchmarks`: measure everything, print the table and store it."""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from benchmarks import core, deadlines, report
from benchmarks.measurement import FULL, QUICK, Effort
from benchmarks.rows import Row
from benchmarks.site import scratch_site
from scripts.servers import NotInstalled

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> None:
    """Parse the command line, measure, report."""
    options = _options()
    # Timeouts are logged as warnings; how fast a terminal scrolls is not the question here.
    logging.getLogger("governance").setLevel(logging.ERROR)
    rows = _measure(QUICK if options.quick else FULL, has_processes=not options.in_process)
    table = report.as_markdown(rows, is_quick=options.quick)
    print(table)
    report.store(rows, directory=options.output, is_quick=options.quick)
    if options.write_docs:
        report.write_into(PAGE, table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a few rounds only: shows that it works, not how fast"
    )
    parser.add_argument(
        "--in-process", action="store_true", help="leave out the rows of real server processes"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "benchmarks" / "results",
        help="directory for latest.json and latest.md (default: benchmarks/results)",
    )
    parser.add_argument(
        "--write-docs", action="store_true", help="put the table into docs/benchmarks.md as well"
    )
    return parser.parse_args()


def _measure(effort: Effort, *, has_processes: bool) -> list[Row]:
    _say("the core, next to a bare loop")
    rows = asyncio.run(core.measure(effort))
    _say("deadlines that run out at once")
    rows += asyncio.run(deadlines.measure(effort))
    _say("whole turns and cancels, with SQLite")
    with scratch_site() as directory:
        # Its models can be imported only now that Django is set up.
        from benchmarks import chat_streams, mcp_calls, whole_turns  # noqa: PLC0415

        rows += asyncio.run(whole_turns.measure(effort, directory=directory))
        _say("streams of a provider, next to its SDK")
        rows += asyncio.run(chat_streams.measure(effort))
        _say("calls of an MCP server, next to the bare client")
        rows += asyncio.run(mcp_calls.measure(effort))
        if has_processes:
            rows += _measure_processes(effort, directory)
    return rows


def _measure_processes(effort: Effort, directory: Path) -> list[Row]:
    from benchmarks import growth, memory, scaled, sites, streaming  # noqa: PLC0415

    try:
        with sites.embedded_site(directory, max_live=max(*effort.streams, effort.held)) as site:
            _say("one server process: clicks")
            click = scaled.clicks(site, effort.clicks)
            rows = [scaled.click_row("embedded", "one process, SQLite", click)]
            _say("one server process: streams")
            rows += streaming.measure(site, effort)
            _say("one server process: memory")
            rows += memory.measure(site, effort)
            _say("one server process: long conversations and a long past, with SQLite")
            rows += growth.measure(site, effort)
        with sites.scaled_site(directory) as (site, redis):
            _say("a web process and a runner, with PostgreSQL and Redis")
            rows += scaled.measure(site, redis, effort, embedded=click)
    except NotInstalled as missing:
        _say(f"nothing of what is left: {missing}")
    return rows


def _say(part: str) -> None:
    print(f"Measuring {part} …", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
