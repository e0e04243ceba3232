"""The host's table."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Make it."""

    initial = True
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("number", models.IntegerField()),
            ],
        )
    ]
