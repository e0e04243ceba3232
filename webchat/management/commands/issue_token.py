"""Issues an API token for a user from the command line."""

import os
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from webchat import api_tokens


class Command(BaseCommand):
    """Issues an API token for a user.

    Only the token is printed to standard output, so that it can be redirected to a file.
    """

    help = "Issues an API token for a user and prints it. The token is not stored, so it cannot be shown again."

    requires_system_checks = ()  # one system check needs a sandbox, which a locked-down systemd unit does not allow

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments for the user and the name of the token."""
        parser.add_argument("username")
        parser.add_argument(
            "name", help="What the token is for, so that you know which one to revoke."
        )

    def handle(self, *args: Any, username: str, name: str, **options: Any) -> None:
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
