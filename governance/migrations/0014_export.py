import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("governance", "0013_view_content"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="toolcall",
            options={
                "ordering": ["-requested_at", "-pk"],
                "permissions": [
                    ("view_content", "Can see messages, arguments and results"),
                    ("export", "Can export what lists of history show"),
                ],
                "verbose_name": "tool call",
                "verbose_name_plural": "tool calls",
            },
        ),
        migrations.CreateModel(
            name="Export",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("source", models.CharField(max_length=100, verbose_name="list")),
                (
                    "filters",
                    models.JSONField(
                        default=dict,
                        help_text="parameter → values, as in the list's address",
                        verbose_name="filters",
                    ),
                ),
                (
                    "format",
                    models.CharField(
                        choices=[("csv", "CSV"), ("json", "JSON")],
                        max_length=8,
                        verbose_name="format",
                    ),
                ),
                ("has_content", models.BooleanField(default=False, verbose_name="with content")),
                ("rows", models.PositiveBigIntegerField(default=0, verbose_name="rows")),
                ("by_name", models.CharField(blank=True, max_length=150, verbose_name="by")),
                ("at", models.DateTimeField(auto_now_add=True, verbose_name="at")),
                ("finished_at", models.DateTimeField(null=True, verbose_name="finished at")),
                (
                    "by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="by",
                    ),
                ),
            ],
            options={
                "verbose_name": "export",
                "verbose_name_plural": "exports",
                "ordering": ["-at", "-pk"],
            },
        ),
    ]
