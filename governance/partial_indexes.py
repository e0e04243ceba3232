"""Partial indexes as the installed version of Django asks for their rows (sync ORM).

SQLite uses one only where a statement has its condition in the same words. Versions of Django word it differently.
"""

from collections.abc import Iterator
from typing import Any

from django.apps import AppConfig
from django.apps import apps as installed
from django.db import connections, transaction


def renew(app_config: AppConfig, *, using: str, apps: Any = installed, **facts: Any) -> None:
    """Make those of an app anew that another version of Django has made. `migrate` does this; `flush` does not."""
    connection = connections[using]
    if connection.vendor != "sqlite" or "plan" not in facts:
        return
    with transaction.atomic(using=using), connection.cursor() as cursor:
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index'")
        stored = dict(cursor.fetchall())
        for name, wanted in _wanted(app_config.label, apps, connection):
            if stored.get(name, wanted) != wanted:
                cursor.execute(f"DROP INDEX {connection.ops.quote_name(name)}")
                cursor.execute(wanted)


def _wanted(label: str, apps: Any, connection: Any) -> Iterator[tuple[str, str]]:
    """Return the name of each partial index of an app, and the statement that makes it."""
    editor = connection.schema_editor(collect_sql=True)
    for model in apps.get_app_config(label).get_models():
        for index in model._meta.indexes:
            if index.condition is not None:
                yield index.name, str(index.create_sql(model, editor))
