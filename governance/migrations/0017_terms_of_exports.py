"""Search terms, and values of filters by content, move to a field of their own: they need the right to see content."""

from typing import Any

from django.db import migrations, models

HIDDEN = "…"
CONTENT = {
    "answer", "attachments", "detail", "host", "images", "input", "late_text", "name", "progress", "q", "result",
    "text", "title", "user_message",
}  # fmt: skip


def hide_terms(apps: Any, schema_editor: Any) -> None:
    exports = apps.get_model("governance", "Export").objects.using(schema_editor.connection.alias)
    for export in exports.filter(has_content=True).iterator():
        names = [name for name in export.filters if name.split("__")[0] in CONTENT]
        export.terms = {name: export.filters[name] for name in names}
        export.filters |= dict.fromkeys(names, [HIDDEN])
        export.save(update_fields=["filters", "terms"])


def show_terms(apps: Any, schema_editor: Any) -> None:
    exports = apps.get_model("governance", "Export").objects.using(schema_editor.connection.alias)
    for export in exports.filter(has_content=True).iterator():
        export.filters |= export.terms
        export.save(update_fields=["filters"])


class Migration(migrations.Migration):
    dependencies = [("governance", "0016_images_of_calls")]
    operations = [
        migrations.AddField(
            model_name="export",
            name="terms",
            field=models.JSONField(
                default=dict, help_text="the same; content", verbose_name="search terms"
            ),
        ),
        migrations.RunPython(hide_terms, show_terms),
    ]
