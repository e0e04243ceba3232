"""Days of tools: their hours, added up, so that a month of them is read at once."""

from collections import defaultdict
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from django.db import migrations, models


def _day_of(row: tuple[datetime, str, Any]) -> datetime:
    return row[0].astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def add_up_hours(apps: Any, schema_editor: Any) -> None:
    alias = schema_editor.connection.alias
    hours = apps.get_model("governance", "ToolHour").objects.using(alias).order_by("hour")
    days = apps.get_model("governance", "ToolDay").objects.using(alias)
    rows = hours.values_list("hour", "tool_name", "bins").iterator()
    for day, of_day in groupby(rows, key=_day_of):
        totals: defaultdict[str, dict[str, dict[str, int]]] = defaultdict(dict)
        for _hour, name, bins in of_day:
            for end, counts in bins.items():
                sums = totals[name].setdefault(end, {})
                for number, count in counts.items():
                    sums[number] = sums.get(number, 0) + count
        days.bulk_create(
            days.model(day=day, tool_name=name, bins=bins) for name, bins in totals.items()
        )


class Migration(migrations.Migration):
    dependencies = [("governance", "0017_terms_of_exports")]
    operations = [
        migrations.CreateModel(
            name="ToolDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("tool_name", models.CharField(max_length=128, verbose_name="tool")),
                ("day", models.DateTimeField(help_text="Its first moment.", verbose_name="day")),
                ("bins", models.JSONField(default=dict, verbose_name="durations")),
            ],
            options={
                "verbose_name": "day of a tool",
                "verbose_name_plural": "days of tools",
                "ordering": ["day", "tool_name"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "tool_name"), name="governance_tool_day_once"
                    )
                ],
            },
        ),
        migrations.RunPython(add_up_hours, migrations.RunPython.noop),
    ]
