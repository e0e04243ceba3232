"""`manage.py forget_user`: removes a person's content, and replaces their name in the remaining records."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from governance.db import run_in_db_thread
from turns.core.turns import PendingRequest
from turns.endings import deletions, forgetting
from turns.models import Conversation


class Command(BaseCommand):
    help = (
        "Remove the messages, arguments, results, thoughts, attachments and notes of a person, and their name. The rows"
        " of turns, calls, cancels and decisions stay under a pseudonym. The account is closed."
        " What runs in a server is cancelled and removed by it within seconds."
    )

    requires_system_checks = ()  # one of them needs a sandbox, which a restricted unit lacks

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--why", default="", help="the reason, kept in the activity")
        parser.add_argument("--dry-run", action="store_true", help="only count")
        parser.add_argument(
            "--no-input", action="store_false", dest="asks", help="remove it without asking"
        )

    def handle(
        self, *args: Any, username: str, why: str, dry_run: bool, asks: bool, **_: Any
    ) -> None:
        users = get_user_model()
        user = users._default_manager.filter(**{users.USERNAME_FIELD: username}).first()
        if user is None:
            raise CommandError(f"There is no user {username!r}.")
        counts = ", ".join(f"{number} {name}" for name, number in forgetting.count(user).items())
        self.stdout.write(f"{'Would remove' if dry_run else 'To remove'}: {counts}.")
        if dry_run:
            return
        if asks and input(f"Forget {username}? [y/N] ").strip().lower() != "y":
            self.stdout.write("Nothing was removed.")
            return
        where = f"manage.py forget_user (uid {os.getuid()})"
        forgetting.forget(user.pk, forgetting.Requester(origin=where, why=why))
        count = asyncio.run(_empty(user.pk))
        user.refresh_from_db()
        self.stdout.write(f"{username} is {user.get_username()} from now on.")
        if count:
            self.stdout.write(
                f"{count} conversations are emptied by a server once nothing runs there."
            )


async def _empty(user_id: Any) -> int:
    """Empty a person's conversations while there is progress; return how many are left."""
    count, before = await _left(user_id), 0
    while count and count != before:
        await deletions.finish(notify_owner=_notify_none)
        count, before = await _left(user_id), count
    return count


@run_in_db_thread
def _left(user_id: Any) -> int:
    return Conversation.objects.filter(owner=user_id, emptied_at=None).count()


async def _notify_none(owner_id: UUID, requests: Sequence[PendingRequest]) -> None:
    """Send no notification, because the processes of the site poll the database every second."""
