"""`manage.py prune`: deletes what is older than it has to be kept."""

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from turns.storage import retention


class Command(BaseCommand):
    """Deletes in small steps, while the site runs."""

    help = (
        "Delete the messages, tool calls and events of turns that ended more than --days ago. The rows of the turns"
        " stay, with who ended them, the cancel requests, the repairs and the decisions of people. Runs in small steps"
        " while the site runs, and may be interrupted. Make a backup before the first time."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the age and how far to go."""
        parser.add_argument("--days", type=float, required=True, help="how old it may get")
        parser.add_argument(
            "--conversations",
            action="store_true",
            help="also delete whole conversations in which nothing happened for that long, with every record of them",
        )
        parser.add_argument("--dry-run", action="store_true", help="only count")
        parser.add_argument(
            "--pause", type=float, default=0.01, help="seconds to leave to others after each turn"
        )

    def handle(
        self, *args: Any, days: float, conversations: bool, dry_run: bool, pause: float, **_: Any
    ) -> None:
        """Delete, and say how much."""
        if days < 1:
            raise CommandError("--days must be at least 1.")
        if pause < 0:
            raise CommandError("--pause must not be negative.")
        pruned = retention.prune(
            timedelta(days=days), with_conversations=conversations, is_dry_run=dry_run, pause=pause
        )
        counted = ", ".join(f"{count} {what}" for what, count in asdict(pruned).items())
        self.stdout.write(f"{'Would delete' if dry_run else 'Deleted'}: {counted}.")
