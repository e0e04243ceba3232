"""Makes the database of a site: python -m tests.faults.prepare prints the users' tokens as JSON."""

import json

import django

NAMES = ("ada", "ben", "root")


def main() -> None:
    """Migrate, then make two users and an administrator, each with a token."""
    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.db import connections

    from webchat import api_tokens

    call_command("migrate", verbosity=0)
    made = {}
    for name in NAMES:
        user = get_user_model().objects.create_user(
            name, password=name, is_staff=name == "root", is_superuser=name == "root"
        )
        made[name] = api_tokens.issue(user=user, name="faults")[1]
    connections.close_all()
    print(json.dumps(made))  # noqa: T201 - for the test that reads it


if __name__ == "__main__":
    main()
