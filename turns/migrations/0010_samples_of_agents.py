from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("turns", "0009_reports_of_processes"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="samples",
            field=models.JSONField(
                blank=True,
                default=list,
                verbose_name="samples",
            ),
        ),
        migrations.AddField(
            model_name="agent",
            name="placeholder",
            field=models.CharField(
                blank=True,
                help_text="Stands in the empty field for a message. Blank = “Message…”.",
                max_length=100,
                verbose_name="placeholder",
            ),
        ),
    ]
