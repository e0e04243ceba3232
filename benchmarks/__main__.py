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

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> None:
    """Parse the command line, measure, report."""
    options = _options()
    # Timeouts are logged as warnings; how fast a terminal scrolls is not the question here.
    logging.getLogger("governance").setLevel(logging.ERROR)
    rows = _measure(QUICK if options.quick else FULL)
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
        "--output",
        type=Path,
        default=ROOT / "benchmarks" / "results",
        help="directory for latest.json and latest.md (default: benchmarks/results)",
    )
    parser.add_argument(
        "--write-docs", action="store_true", help="put the table into docs/benchmarks.md as well"
    )
    return parser.parse_args()


def _measure(effort: Effort) -> list[Row]:
    _say("the core, next to a bare loop")
    rows = asyncio.run(core.measure(effort))
    _say("deadlines that run out at once")
    rows += asyncio.run(deadlines.measure(effort))
    _say("whole turns and cancels, with SQLite")
    with scratch_site() as directory:
        # Its models can be imported only now that Django is set up.
        from benchmarks import whole_turns  # noqa: PLC0415

        rows += asyncio.run(whole_turns.measure(effort, directory=directory))
    return rows


def _say(part: str) -> None:
    print(f"Measuring {part} …", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
