from typing import Any

from django.db import migrations

from governance.permissions import grant

GROUPS = ("Governance auditors", "Governance operators")


def give_to_the_groups_that_are_there(apps: Any, schema_editor: Any) -> None:
    for new, name, model in (
        ("governance.export", "Can export what lists of history show", "toolcall"),
        ("governance.view_export", "Can view export", "export"),
    ):
        grant(apps, new=new, name=name, model=model, to_groups=GROUPS)


class Migration(migrations.Migration):
    dependencies = [
        ("governance", "0014_export"),
        ("turns", "0010_samples_of_agents"),
    ]

    operations = [
        migrations.RunPython(give_to_the_groups_that_are_there, migrations.RunPython.noop),
    ]
