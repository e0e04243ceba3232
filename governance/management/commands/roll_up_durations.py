"""`manage.py roll_up_durations`: records how long past calls ran, for the pages of limits."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from governance import rollups

HOURS_OF_A_DAY = 24


class Command(BaseCommand):
    """Rolls up every hour of the given period again. You can interrupt it and run it again at any time."""

    help = (
        "Record how long the calls of the past --days ran, per tool and hour. Servers do this after every hour. Run it"
        " once after an upgrade from a version that did not, and from a timer if no server runs turns."
    )

    requires_system_checks = ()  # the check of the sandbox fails in a hardened systemd unit

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--days", type=float, default=30.0, help="how many days back (default: 30)"
        )

    def handle(self, *args: Any, days: float, **_: Any) -> None:
        if not 0 < days <= 3_650:
            raise CommandError("--days must be above 0 and at most 3650.")
        count = 0
        for count, hour in enumerate(rollups.fill(timedelta(days=days)), start=1):
            if count % HOURS_OF_A_DAY == 0:
                self.stdout.write(f"Up to {hour:%Y-%m-%d %H:%M} UTC: {count} hours.")
        self.stdout.write(f"Rolled up: {count} hours.")
