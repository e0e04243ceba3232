"""Creates a user and an administrator for trying out the site."""

import os
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandParser
from django.utils.crypto import get_random_string
from django.utils.translation import gettext as _

from governance.db import atomic

_PASSWORD_LENGTH = 16


class Command(BaseCommand):
    """Creates the users `demo` and `admin` if they do not exist, and prints and stores their random passwords."""

    help = "Create the users `demo` and `admin` with random passwords, unless they exist."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the argument with the path of the password file."""
        parser.add_argument(
            "--credentials", type=Path, required=True, help="file that keeps the passwords"
        )

    def handle(self, *args: Any, credentials: Path, **options: Any) -> None:
        """Create the missing users, and print where the passwords are stored."""
        with atomic():  # creates no user whose password cannot be stored
            passwords = {
                name: password
                for name, is_admin in (("demo", False), ("admin", True))
                if (password := _create(name, is_admin=is_admin)) is not None
            }
            if passwords:
                _keep({**_kept(credentials), **passwords}, credentials)
        for name, password in passwords.items():
            line = _("Created the user %(name)s with the password %(password)s")
            self.stdout.write(line % {"name": name, "password": password})
        if credentials.exists():
            self.stdout.write(_("The passwords are stored in %(path)s") % {"path": credentials})


def _create(name: str, *, is_admin: bool) -> str | None:
    users = get_user_model()
    if users.objects.filter(**{users.USERNAME_FIELD: name}).exists():
        return None
    password = get_random_string(_PASSWORD_LENGTH)
    user = users(**{users.USERNAME_FIELD: name, "is_staff": is_admin, "is_superuser": is_admin})
    user.set_password(password)
    user.save()
    return password


def _kept(credentials: Path) -> dict[str, str]:
    if not credentials.exists():
        return {}
    lines = credentials.read_text("utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines if " " in line)


def _keep(passwords: dict[str, str], credentials: Path) -> None:
    credentials.parent.mkdir(parents=True, exist_ok=True)
    # The mode is set when the file is created, so that others can never read it.
    descriptor = os.open(credentials, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.writelines(f"{name} {password}\n" for name, password in passwords.items())
