"""Migrate a database as the next version would: columns, an index, a lock on the busiest tables. python -m tests.faults.next_version."""

import time

import django

LOCKED = 2.0  # seconds


def main() -> None:
    """Change the tables that running processes write, as a migration may that lets them run on."""
    django.setup()
    from django.db import connection, migrations, models, transaction
    from django.db.migrations.executor import MigrationExecutor
    from django.db.migrations.recorder import MigrationRecorder

    column = models.CharField(max_length=20, default="", db_default="")
    index = models.Index(fields=["next_column"], name="next_index")
    executor = MigrationExecutor(connection)
    state = executor.loader.project_state()
    for app, model in (("turns", "turn"), ("turns", "process"), ("governance", "toolcall")):
        for operation in (
            migrations.AddField(model, "next_column", column),
            migrations.AddIndex(model, index.clone()),
        ):
            if isinstance(operation, migrations.AddIndex):
                operation.index.name = f"next_{model}"
            before, state = state, state.clone()
            operation.state_forwards(app, state)
            with connection.schema_editor() as editor:
                operation.database_forwards(app, editor, before, state)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK turns_turn, governance_toolcall IN ACCESS EXCLUSIVE MODE")
        time.sleep(LOCKED)
    MigrationRecorder(connection).record_applied("turns", "9999_next_version")


if __name__ == "__main__":
    main()
