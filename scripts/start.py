"""Migrates the database, creates the demo users, and serves the site."""

import gc
import importlib
import ipaddress
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import django
import environ
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections

from turns.storage import database_state

ROOT = Path(__file__).resolve().parent.parent
# The same names as in `turns.chat_models.providers`, which cannot be imported before Django has its settings.
SPEAK_LIKE_OPENAI = [
    "alibaba",
    "cerebras",
    "deepseek",
    "fireworks",
    "moonshotai",
    "openrouter",
    "together",
    "zai",
]
# The package that each API needs, and the extra that contains it. Every other API needs the same as OpenAI's.
APIS = {"anthropic": ("anthropic", "anthropic"), "google": ("google.genai", "google")}
LIKE_OPENAI = ("openai", "openai")
NEEDS = (  # a variable, the beginning of its value, the package that this value needs, and the extra with the package
    *(("AGENT_MODEL", f"{name}:", *needs) for name, needs in APIS.items()),
    ("AGENT_MODEL", "openai", *LIKE_OPENAI),
    *(("AGENT_MODEL", f"{name}:", *LIKE_OPENAI) for name in SPEAK_LIKE_OPENAI),
    ("DATABASE_URL", "postgres", "psycopg", "scaled"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http", "opentelemetry.exporter.otlp", "otel"),
    ("REDIS_URL", "redis", "channels_redis", "scaled"),
    ("TURNS_DISPATCHER", "runners", "psycopg", "scaled"),
)
OPENED = {
    "HTTPS": "false",
    "GOVERNANCE_EXEC_ENABLED": "true",
    "SILENCED_SYSTEM_CHECKS": "governance.W007",
}


def main() -> None:
    """Prepare the site, then serve it until a signal arrives."""
    gc.set_threshold(50_000, 20, 100)  # see manage.py for the reason
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    environ.Env.read_env(os.environ.get("ENV_FILE") or str(ROOT / ".env"))
    open_up()
    install_chosen_extras()
    django.setup()
    refuse_unusable_database()
    call_command("migrate", verbosity=0)
    call_command("create_demo_users", credentials=settings.VAR_DIR / "credentials.txt")
    connections.close_all()
    # The server runs in this process, which replaced make's shell, so that Ctrl-C reaches it and no process is left
    # behind. The system checks run too: they warn, for example, about commands without a sandbox, and an error prevents
    # the start.
    call_command("serve", skip_checks=False)


def refuse_unusable_database() -> None:
    """Raise `CommandError` with the reason if the database cannot be used. Nothing in it has been changed yet."""
    if problem := database_state.problem(is_own=True):
        raise CommandError(problem)


def install_chosen_extras() -> None:
    """Install the extras that the environment variables require, and print which variable requires each.

    Exit if that fails.
    """
    for variable, value, extra in chosen_extras(os.environ):
        beginning = value.partition(":")[0].strip('{"')
        print(f"{variable}={beginning} needs the packages of EXTRAS={extra}.", flush=True)
        environment = {**os.environ, "EXTRAS": extra}
        if subprocess.run([ROOT / "scripts" / "environment", "base"], env=environment).returncode:
            sys.exit(f"Nothing was started. Unset {variable} to start without these packages.")
        importlib.invalidate_caches()


def chosen_extras(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each variable that needs a missing package, its value, and the extra that contains the package."""
    for variable, beginning, package, extra in NEEDS:
        value = environment.get(variable, "")
        if value.startswith(beginning) and not is_installed(package):
            yield variable, value, extra
    endpoints = environment.get("TURNS_CHAT_MODEL_ENDPOINTS", "")
    for package, extra in sorted(set(needs_of_endpoints(endpoints))):
        if not is_installed(package):
            yield "TURNS_CHAT_MODEL_ENDPOINTS", endpoints, extra


def needs_of_endpoints(value: str) -> Iterator[tuple[str, str]]:
    """Yield the package and the extra that each endpoint needs.

    Ignore an invalid value, because the settings report it later.
    """
    with suppress(ValueError, AttributeError, TypeError):
        for endpoint in json.loads(value).values():
            yield APIS.get(endpoint.get("api"), LIKE_OPENAI)


def is_installed(package: str) -> bool:
    """Return whether a package can be imported."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is missing too
        return False


def open_up() -> None:
    """Allow HTTP and commands if only this machine can reach the site. Otherwise print a hint about HTTPS."""
    if is_loopback(os.environ.get("HOST") or "127.0.0.1"):
        # Only users of this machine can reach the site, so it needs no certificate and may run commands.
        os.environ.update(
            {name: value for name, value in OPENED.items() if not os.environ.get(name)}
        )
    elif not os.environ.get("HTTPS"):
        print(
            "Other machines can reach this address, so browsers must use HTTPS (see HTTPS in .env.example)."
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # pressed before the server's handler for Ctrl-C was installed
        sys.exit(130)
    except CommandError as problem:
        sys.exit(str(problem))
