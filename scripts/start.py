"""From a fresh database to a running server: migrate, make the demo users, serve."""

import ipaddress
import os
import sys
from pathlib import Path

import django
import environ
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Prepare the site, then serve it until a signal comes."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    environ.Env.read_env(os.environ.get("ENV_FILE", str(ROOT / ".env")))
    open_up()
    django.setup()
    call_command("migrate", verbosity=0)
    call_command("create_demo_users", credentials=settings.VAR_DIR / "credentials.txt")
    connections.close_all()
    # In this process, which took the place of make's shell: Ctrl-C reaches the server, and nothing is left behind.
    # Says what is not as it should be, such as commands without a sandbox, and starts nothing that is wrong.
    call_command("serve", skip_checks=False)


def open_up() -> None:
    """Allow what is safe where only this machine can reach the site: no HTTPS, commands."""
    if is_loopback(os.environ.get("HOST", "127.0.0.1")):
        # Nobody but the people of this machine can reach it: no certificate is needed, commands may run.
        os.environ.setdefault("HTTPS", "false")
        os.environ.setdefault("GOVERNANCE_EXEC_ENABLED", "true")
        os.environ.setdefault("SILENCED_SYSTEM_CHECKS", "governance.W007")
    elif "HTTPS" not in os.environ:
        print(
            "Other machines can reach this address, so browsers must come by HTTPS (HTTPS in .env.example)."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # before the server had its own answer to Ctrl-C
        sys.exit(130)
    except CommandError as problem:
        sys.exit(str(problem))
