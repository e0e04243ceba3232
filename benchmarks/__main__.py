"""`python -m benchmarks`: measure everything, print the table and store it."""

import argparse
import logging
from pathlib import Path

from benchmarks import report
from benchmarks.measurement import FULL, QUICK
from benchmarks.progress import say
from benchmarks.run import IN_PROCESS, PARTS, Run

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> None:
    """Parse the command line, measure, report."""
    options = _options()
    # Timeouts are logged as warnings; how fast a terminal scrolls is not the question here.
    logging.getLogger("governance").setLevel(logging.ERROR)
    run = Run(QUICK if options.quick else FULL, parts=options.parts)
    run.measure()
    say("Done")
    table = report.as_markdown(run.rows, is_quick=options.quick)
    print(table)
    report.store(run.rows, directory=options.output, is_quick=options.quick)
    if options.write_docs:
        report.write_into(PAGE, table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a few rounds only: shows that it works, not how fast"
    )
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument(
        "--in-process",
        dest="parts",
        action="store_const",
        const=IN_PROCESS,
        help="leave out the rows of real server processes",
    )
    parts.add_argument(
        "--only",
        dest="parts",
        nargs="+",
        choices=PARTS,
        metavar="PART",
        help=f"measure these parts: {', '.join(PARTS)}",
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
    parser.set_defaults(parts=PARTS)
    options = parser.parse_args()
    if options.write_docs and set(options.parts) != set(PARTS):
        parser.error("--write-docs wants a whole run")
    return options


if __name__ == "__main__":
    main()
