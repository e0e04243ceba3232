"""Makes an API token for a user, where the admin is out of reach."""

import os
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from webchat import api_tokens


class Command(BaseCommand):
    """Prints the token alone on standard output, so that it can be piped into a file."""

    help = "Makes an API token for a user and prints it, this once: it is not stored and cannot be shown again."

    requires_system_checks = ()  # one is for a sandbox, which a closed unit has not

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the user and what the token is for."""
        parser.add_argument("username")
        parser.add_argument("name", help="What it is for, so that you know what you revoke.")

    def handle(self, *args: Any, username: str, name: str, **options: Any) -> None:
        """Make and print the token."""
        user_model = get_user_model()
        user = user_model._default_manager.filter(
            **{user_model.USERNAME_FIELD: username}, is_active=True
        ).first()
        if user is None:
            raise CommandError(f"There is no active user {username!r}.")
        where = f"manage.py issue_token (uid {os.getuid()})"
        row, token = api_tokens.issue(user=user, name=name[:100], where=where)
        self.stderr.write(f"“{row.name}” for {username}; revoke it in the admin under API tokens.")
        self.stdout.write(token)
