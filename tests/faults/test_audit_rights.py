"""The rights of the database that the audit's page gives: a role that may only append (PostgreSQL)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.db import DatabaseError, connections, transaction
from django.utils import timezone

from governance.models import Activity, Export, PolicyChange
from tests.faults.conftest import MakeSite
from tests.faults.database_snapshot import connected
from turns.models import CancelRequest, ConversationChange

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "audit.md"
TOLD_BY_NAME = {"tool_name", "agent_name", "server_name", "token_name"}


def append_only() -> list[Any]:
    """Every table that the page takes from the site: the activity, the audited edits, and the exports."""
    changes = (
        model
        for model in apps.get_models()
        if any(base.__name__ == "Change" for base in model.__mro__) and not model._meta.proxy
    )
    return [Activity, Export, *changes]


def append(model: Any, alias: str) -> Any:
    facts: dict[str, Any] = {"action": "change", "by_name": "ada"}
    if model is Activity:
        facts |= {"kind": "limits", "at": timezone.now()}
    if model is Export:
        facts = {"source": "turns.Turn", "format": "csv", "by_name": "ada"}
    if model is PolicyChange:
        facts["version"] = PolicyChange.objects.using(alias).count() + 1
    if model is ConversationChange:
        facts["conversation_id"] = uuid4()
    names = TOLD_BY_NAME & {field.name for field in model._meta.fields}
    return model.objects.using(alias).create(**facts, **dict.fromkeys(names, "x"))


def attacks(table: str) -> Iterator[str]:
    yield f"DELETE FROM {table}"
    yield f"TRUNCATE {table}"
    yield f"UPDATE {table} SET by_name = 'nobody'"
    yield f"UPDATE {table} SET at = now()"
    yield f"ALTER TABLE {table} ADD COLUMN x int"


def test_the_rights_of_the_howto_keep_the_site_from_rewriting_the_audit(scaled: MakeSite):
    rights = "\n".join(re.findall(r"```sql\n(.*?)```", HOWTO.read_text("utf-8"), re.DOTALL))
    with (
        connected(scaled().database_url, writes=True) as alias,
        transaction.atomic(using=alias),
        connections[alias].cursor() as cursor,
    ):
        cursor.execute("CREATE ROLE turnkeeper_site")
        cursor.execute("CREATE ROLE turnkeeper_owner")
        cursor.execute(rights)
        cursor.execute("SET LOCAL ROLE turnkeeper_site")
        for model in append_only():
            entry, table = append(model, alias), model._meta.db_table
            for attack in attacks(table):
                with (
                    pytest.raises(DatabaseError, match=r"permission denied|must be owner"),
                    transaction.atomic(using=alias),
                ):
                    cursor.execute(attack)
            cursor.execute(f"UPDATE {table} SET by_id = NULL WHERE id = %s", [entry.pk])
        Export.objects.using(alias).update(rows=1, finished_at=timezone.now())
        CancelRequest.objects.using(alias).update(settled_at=timezone.now())
        transaction.set_rollback(True, using=alias)
