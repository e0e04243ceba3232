"""A site of its own for the benchmark: the shipped settings, a SQLite database in a temporary directory."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command

_NEUTRAL = {
    "AGENT_MODEL": "local",
    "DJANGO_SETTINGS_MODULE": "config.settings",
    "ENV_FILE": os.devnull,
    "GOVERNANCE_APPROVAL": "*=never",
    "GOVERNANCE_EXEC_ENABLED": "true",
    "LOG_LEVEL": "ERROR",
    "SECRET_KEY": "only-for-a-benchmark-" + "x" * 40,
}
_DROPPED = (
    "AGENT_TOOL_TIMEOUT",
    "DATABASE_URL",
    "GOVERNANCE_WORKSPACE_ROOT",
    "REDIS_URL",
    "TURNKEEPER_CRASH",  # each pass of a checkpoint reads a file
)


@contextmanager
def scratch_site(database_url: str = "") -> Iterator[Path]:
    """Set Django up with a migrated database; give the directory that holds everything.

    The database is SQLite there, if no other is named. Django can be set up once in a process, so this can be entered
    once.
    """
    with TemporaryDirectory(prefix="turnkeeper-benchmark-") as directory:
        for name in _DROPPED:
            os.environ.pop(name, None)
        os.environ.update(_NEUTRAL, VAR_DIR=directory)
        if database_url:
            os.environ["DATABASE_URL"] = database_url
        django.setup()
        call_command("migrate", verbosity=0)
        # Nobody types so fast. Set as a site sets it: what is overridden takes longer to read.
        settings.TURNS_MAX_MESSAGES_PER_MINUTE = 100_000
        yield Path(directory).resolve()


class StatementCounter:
    """Counts what goes to the database, by kind; put into `connection.execute_wrappers`."""

    def __init__(self) -> None:
        self.reads = 0
        self.writes = 0
        self.transactions = 0

    def __call__(
        self,
        execute: Callable[..., Any],
        sql: str,
        params: Any,
        many: bool,  # noqa: FBT001 - Django calls it like this
        context: Any,
    ) -> Any:
        """Count one statement and let it through. Savepoints are part of their transaction."""
        match sql.split(maxsplit=1)[0].upper():
            case "SELECT":
                self.reads += 1
            case "BEGIN":
                self.transactions += 1
            case "INSERT" | "UPDATE" | "DELETE":
                self.writes += 1
        return execute(sql, params, many, context)
