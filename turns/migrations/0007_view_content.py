from typing import Any

from django.db import migrations

from governance.permissions import grant


def give_to_who_sees_content_today(apps: Any, schema_editor: Any) -> None:
    grant(
        apps,
        new="governance.view_content",
        name="Can see messages, arguments and results",
        model="toolcall",
        to_holders_of=("turns.view_turn", "turns.view_conversation"),
    )


class Migration(migrations.Migration):
    dependencies = [
        ("governance", "0013_view_content"),
        ("turns", "0006_conversation_edits"),
    ]

    operations = [
        migrations.RunPython(give_to_who_sees_content_today, migrations.RunPython.noop),
    ]
