"""From a fresh database to a running server: migrate, make the demo users, serve."""

import gc
import importlib
import ipaddress
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import django
import environ
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections

from turns.storage import database_state

ROOT = Path(__file__).resolve().parent.parent
NEEDS = (  # a variable, how its value begins, a package that it needs then, and the extra that holds it
    ("AGENT_MODEL", "anthropic:", "anthropic", "anthropic"),
    ("AGENT_MODEL", "google:", "google.genai", "google"),
    ("AGENT_MODEL", "openai:", "openai", "openai"),
    ("DATABASE_URL", "postgres", "psycopg", "scaled"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http", "opentelemetry.exporter.otlp", "otel"),
    ("REDIS_URL", "redis", "channels_redis", "scaled"),
    ("TURNS_DISPATCHER", "procrastinate", "procrastinate", "scaled"),
)
OPENED = {
    "HTTPS": "false",
    "GOVERNANCE_EXEC_ENABLED": "true",
    "SILENCED_SYSTEM_CHECKS": "governance.W007",
}


def main() -> None:
    """Prepare the site, then serve it until a signal comes."""
    gc.set_threshold(50_000, 20, 100)  # as in manage.py
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    environ.Env.read_env(os.environ.get("ENV_FILE") or str(ROOT / ".env"))
    open_up()
    install_what_is_chosen()
    django.setup()
    refuse_what_is_no_database_of_ours()
    call_command("migrate", verbosity=0)
    call_command("create_demo_users", credentials=settings.VAR_DIR / "credentials.txt")
    connections.close_all()
    # In this process, which took the place of make's shell: Ctrl-C reaches the server, and nothing is left behind.
    # Says what is not as it should be, such as commands without a sandbox, and starts nothing that is wrong.
    call_command("serve", skip_checks=False)


def refuse_what_is_no_database_of_ours() -> None:
    """Say why a database cannot be used before anything is changed in it. Raise `CommandError`."""
    if problem := database_state.problem(is_own=True):
        raise CommandError(problem)


def install_what_is_chosen() -> None:
    """Install what the environment asks for beyond the default; say which line of it does."""
    for variable, value, extra in chosen_extras(os.environ):
        print(
            f"{variable}={value.partition(':')[0]} needs what EXTRAS={extra} installs.", flush=True
        )
        environment = {**os.environ, "EXTRAS": extra}
        if subprocess.run([ROOT / "scripts" / "environment", "base"], env=environment).returncode:
            sys.exit(f"Nothing was started. Without {variable} the site needs nothing more.")
        importlib.invalidate_caches()


def chosen_extras(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each variable that needs a package which is not installed, its value, and the extra that holds it."""
    for variable, beginning, package, extra in NEEDS:
        value = environment.get(variable, "")
        if value.startswith(beginning) and not is_installed(package):
            yield variable, value, extra


def is_installed(package: str) -> bool:
    """Whether a package could be imported."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # nor what it lies in
        return False


def open_up() -> None:
    """Allow what is safe where only this machine can reach the site: no HTTPS, commands."""
    if is_loopback(os.environ.get("HOST") or "127.0.0.1"):
        # Nobody but the people of this machine can reach it: no certificate is needed, commands may run.
        os.environ.update(
            {name: value for name, value in OPENED.items() if not os.environ.get(name)}
        )
    elif not os.environ.get("HTTPS"):
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
