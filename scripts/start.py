"""From a fresh database to a running server: migrate, make the demo users, then become `manage.py serve`."""

import ipaddress
import os
import sys
from pathlib import Path

import django
import environ
from django.conf import settings
from django.core.management import call_command
from django.db import connections

_ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Prepare the site and hand this process over to the server."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    environ.Env.read_env(os.environ.get("ENV_FILE", str(_ROOT / ".env")))
    if is_loopback(os.environ.get("HOST", "127.0.0.1")):
        # Nobody but the people of this machine can reach it: no certificate is needed, and commands may run.
        os.environ.setdefault("HTTPS", "false")
        os.environ.setdefault("GOVERNANCE_EXEC_ENABLED", "true")
        os.environ.setdefault("SILENCED_SYSTEM_CHECKS", "governance.W007")
    django.setup()
    call_command("migrate", verbosity=0)
    call_command("create_demo_users", credentials=settings.VAR_DIR / "credentials.txt")
    connections.close_all()
    sys.stdout.flush()
    # The server takes this process's place, so that Ctrl-C and SIGTERM reach it and nothing is left behind.
    os.execv(sys.executable, [sys.executable, str(_ROOT / "manage.py"), "serve"])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    main()
