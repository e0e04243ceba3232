"""The migrated database has what the models declare: Django can drop a constraint when another field is altered."""

import pytest
from django.apps import apps
from django.db import connection

MODELS = [
    model
    for app in ("governance", "turns", "webchat")
    for model in apps.get_app_config(app).get_models()
    if not model._meta.proxy
]


@pytest.mark.django_db
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label)
def test_every_constraint_and_index_of_a_model_is_in_the_database(model):
    declared = {part.name for part in (*model._meta.constraints, *model._meta.indexes)}
    with connection.cursor() as cursor:
        known = connection.introspection.get_constraints(cursor, model._meta.db_table)
    assert declared <= set(known)
