"""`manage.py prune`: deletes data that is older than its retention."""

import sys
import time
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from governance import rollups
from turns.storage import retention
from turns.storage.retention import Pruned

REPORT_EVERY = 5.0  # seconds
INTERRUPTED = 130  # the exit code after Ctrl-C


class Command(BaseCommand):
    """Deletes in small batches, while the site runs."""

    help = (
        "Delete the messages, tool calls and events of turns that ended more than --days ago. The rows of the turns"
        " stay, with who ended them, the cancel requests, the repairs and the decisions of people. Runs in small batches"
        " while the site runs, and may be interrupted and run again. Make a backup before the first time."
    )

    requires_system_checks = ()  # one of them needs a sandbox, which a restricted unit lacks

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--days", type=float, required=True, help="how old it may get")
        parser.add_argument(
            "--conversations",
            action="store_true",
            help="also delete whole conversations in which nothing happened for that long, with every record of them",
        )
        parser.add_argument("--dry-run", action="store_true", help="only count")
        parser.add_argument(
            "--pause",
            type=float,
            default=0.05,
            help="seconds to leave to others after each batch of up to 100 turns (default: %(default)s)",
        )

    def handle(
        self, *args: Any, days: float, conversations: bool, dry_run: bool, pause: float, **_: Any
    ) -> None:
        if days < 1:
            raise CommandError("--days must be at least 1.")
        if pause < 0:
            raise CommandError("--pause must not be negative.")
        self._done, self._next_report = Pruned(), time.monotonic() + REPORT_EVERY
        try:
            while not dry_run and rollups.roll_up():
                pass  # so that durations outlive their calls
            pruned = retention.prune(
                timedelta(days=days),
                with_conversations=conversations,
                is_dry_run=dry_run,
                pause=pause,
                report=self._report,
            )
        except KeyboardInterrupt:
            self._say(f"Interrupted. Deleted: {_summary(self._done)}. Run it again to go on.")
            sys.exit(INTERRUPTED)
        self._say(f"{'Would delete' if dry_run else 'Deleted'}: {_summary(pruned)}.")

    def _report(self, done: Pruned, planned: Pruned) -> None:
        self._done = done
        if time.monotonic() >= self._next_report:
            self._next_report = time.monotonic() + REPORT_EVERY
            self._say(f"{done.turns} of {planned.turns} turns")

    def _say(self, sentence: str) -> None:
        self.stdout.write(sentence)
        self.stdout.flush()


def _summary(pruned: Pruned) -> str:
    return ", ".join(f"{count} {what}" for what, count in asdict(pruned).items())
