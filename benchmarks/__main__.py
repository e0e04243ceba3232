"""`python -m benchmarks`: measure the speed that users notice, print the table and store it in var/benchmarks.md."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks import admin_pages, crowds, sites, table, turns
from benchmarks.size import FULL, QUICK, Size
from scripts.servers import NotInstalled

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "var" / "benchmarks.md"

_start = time.monotonic()


def main() -> None:
    """Run the chosen parts. A full run fails if a row misses its bar."""
    options = _options()
    rows: list[table.Row] = []
    for part in options.parts:
        try:
            for row in PARTS[part](QUICK if options.quick else FULL):
                _log(f"{row.what}: {row.measured}")
                rows.append(row)
        except NotInstalled as missing:
            _log(f"Without the rest of {part}: {missing}")
    text = table.as_markdown(rows, is_quick=options.quick)
    print(text)
    if options.quick:
        return
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text, "utf-8")
    sys.exit(any(row.is_kept is False for row in rows))


def _one_process(size: Size) -> Iterator[table.Row]:
    server = sites.ONE_PROCESS
    with sites.one_process(at_once=2 * size.sockets) as site:
        yield from crowds.memory(site, size, server=server)  # first, while the process is small
        yield turns.message_to_model(site, size, server=server)
        yield turns.cancel_to_end(site, size, server=server, most_p99=100)
        yield turns.many_calls_to_end(site, size, server=server)
        yield crowds.streams(site, size, server=server)
        yield turns.long_conversation(site, size, server=server)
        if all(map(find_spec, ("langgraph", "aiosqlite"))):
            from benchmarks import durable  # noqa: PLC0415 - it imports LangGraph

            yield durable.durable_turn(site, size, server=server)
        else:
            _log("Without LangGraph, which is not installed (make bench EXTRAS=peers)")


def _across_processes(size: Size) -> Iterator[table.Row]:
    server = sites.ACROSS_PROCESSES
    with sites.across_processes() as site:
        yield turns.message_to_model(site, size, server=server)
        yield turns.cancel_to_end(site, size, server=server, most_p99=300)


def _admin(size: Size) -> Iterator[table.Row]:
    with sites.one_process(at_once=50) as site:
        yield admin_pages.admin_pages(site, size, server=sites.ONE_PROCESS)


PARTS: dict[str, Callable[[Size], Iterator[table.Row]]] = {
    "one-process": _one_process,
    "across-processes": _across_processes,
    "admin": _admin,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="take a minute, to show that it works, not how fast it is",
    )
    parser.add_argument(
        "--only",
        dest="parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        metavar="PART",
        help=f"measure these parts: {', '.join(PARTS)}",
    )
    return parser.parse_args()


def _log(text: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - _start), 60)
    print(f"{minutes:2}:{seconds:02}  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
