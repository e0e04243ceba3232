from typing import Any

from django.db import migrations, models

import governance.labels


def name_known_limits(apps: Any, schema_editor: Any) -> None:
    """Say which limit ended the calls that ran out of time, as the text for the model does."""
    calls = apps.get_model("governance", "ToolCall").objects.using(schema_editor.connection.alias)
    timed_out = calls.filter(error_type="timeout", limit_reached="")
    timed_out.filter(result__contains="made no progress for that long").update(limit_reached="idle")
    timed_out.update(limit_reached="total")
    calls.filter(error_type="expired").update(limit_reached="approval")


class Migration(migrations.Migration):
    dependencies = [
        ("governance", "0004_mcp_trust_and_audit"),
    ]

    operations = [
        migrations.AddField(
            model_name="toolcall",
            name="limit_reached",
            field=models.CharField(
                blank=True,
                choices=governance.labels.limits,
                default="",
                max_length=16,
                verbose_name="limit that ran out",
            ),
            preserve_default=False,
        ),
        migrations.RunPython(name_known_limits, migrations.RunPython.noop),
    ]
