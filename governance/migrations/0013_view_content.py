from typing import Any

from django.conf import settings
from django.db import migrations

from governance.permissions import grant


def give_to_who_sees_content_today(apps: Any, schema_editor: Any) -> None:
    grant(
        apps,
        new="governance.view_content",
        name="Can see messages, arguments and results",
        model="toolcall",
        to_holders_of=("governance.view_toolcall", "governance.view_approval"),
    )


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("governance", "0012_temporary_limits"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="toolcall",
            options={
                "ordering": ["-requested_at", "-pk"],
                "permissions": [("view_content", "Can see messages, arguments and results")],
                "verbose_name": "tool call",
                "verbose_name_plural": "tool calls",
            },
        ),
        migrations.RunPython(give_to_who_sees_content_today, migrations.RunPython.noop),
    ]
