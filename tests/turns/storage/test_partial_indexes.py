"""Partial indexes on SQLite: those that another version of Django has made are made anew by `migrate`."""

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from turns.endings.report_delivery import _left_behind

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL knows both forms."),
]


def partial_indexes() -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql LIKE '% WHERE %'"
        )
        return dict(cursor.fetchall())


def otherwise(sql: str) -> str:
    """Write the condition as Django 6.1 does where an older one has written it, and the other way round."""
    if '"is_detached" = 1' in sql:
        return sql.replace('"is_detached" = 1', '"is_detached"')
    return sql.replace('"is_detached"', '"is_detached" = 1')


def way_to_reports() -> str:
    sql, params = _left_behind().order_by("parent__conversation_id").query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
        return str(cursor.fetchall()[0])


def test_migrate_makes_an_index_of_another_version_of_django_anew():
    before = partial_indexes()
    assert "turns_undelivered" in way_to_reports()
    with connection.cursor() as cursor:
        cursor.execute("DROP INDEX turns_undelivered")
        cursor.execute(otherwise(before["turns_undelivered"]))
    assert "turns_undelivered" not in way_to_reports()
    call_command("migrate", verbosity=0)
    assert partial_indexes() == before
    assert "turns_undelivered" in way_to_reports()


def test_what_fits_is_left_alone():
    with CaptureQueriesContext(connection) as queries:
        call_command("migrate", verbosity=0)
    assert not [query for query in queries if "INDEX" in query["sql"]]
    assert len(partial_indexes()) > 10
    models = [
        model for app in ("governance", "turns") for model in apps.get_app_config(app).get_models()
    ]
    conditions = [
        index.name for model in models for index in model._meta.indexes if index.condition
    ]
    assert {*conditions} <= partial_indexes().keys()
