"""`manage.py remove_turnkeeper`: removes Turnkeeper's rows from Django's own tables after its migrations are undone."""

from collections import Counter
from typing import Any

from django.apps import apps
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections, router, transaction
from django.db.migrations.loader import MigrationLoader

from governance.db import database_connection

APPS = ("webchat", "turns", "governance")  # in the order in which their migrations are undone
GROUP_NAMES = ("Governance auditors", "Governance operators")  # as `turns` creates them


class Command(BaseCommand):
    """Removes groups, permissions and content types, and prints how many of each it removed."""

    help = (
        "Remove the groups, permissions and content types of governance, turns and webchat from the database. Undo the"
        " migrations first: `migrate webchat zero`, `migrate turns zero`, `migrate governance zero`. A group that"
        " also has other permissions is kept, with these."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--no-input", action="store_false", dest="asks", help="remove them without asking"
        )

    def handle(self, *args: Any, asks: bool, **_: Any) -> None:
        """Remove the rows and print how many they are. If the user is asked and does not agree, roll back."""
        if tables := self._tables():
            steps = " && ".join(f"manage.py migrate {app} zero" for app in APPS)
            raise CommandError(
                f"{len(tables)} tables are still there. Undo the migrations first: {steps}"
            )
        using = router.db_for_write(ContentType)
        with transaction.atomic(using=using):
            removed = self._remove(using)
            for label, count in sorted(removed.items()):
                self.stdout.write(f"{label}: {count}")
            if removed and asks and input("Remove these rows? [y/N] ").strip().lower() != "y":
                transaction.set_rollback(True, using=using)
                self.stdout.write("Nothing was removed.")
                return
        self.stdout.write("Removed." if removed else "There is nothing to remove.")

    def _tables(self) -> set[str]:
        database = database_connection()
        ours = {
            model._meta.db_table
            for app in APPS
            if apps.is_installed(app)
            for model in apps.get_app_config(app).get_models(include_auto_created=True)
        }
        return ours & set(database.introspection.table_names())

    def _remove(self, using: str) -> Counter[str]:
        removed: Counter[str] = Counter()
        permissions = Permission.objects.using(using).filter(content_type__app_label__in=APPS)
        # Use a state without our models, because Django would query their tables, which no longer exist, for rows that
        # refer to a group.
        loader = MigrationLoader(connections[using])
        remaining_nodes = [node for node in loader.graph.leaf_nodes() if node[0] not in APPS]
        auth = loader.project_state(remaining_nodes).apps.get_app_config("auth")
        others = auth.get_model("Permission")._default_manager.using(using)
        others = others.exclude(content_type__app_label__in=APPS)
        groups = auth.get_model("Group")._default_manager.using(using).filter(name__in=GROUP_NAMES)
        rows = (
            groups.exclude(permissions__in=others),
            permissions,
            ContentType.objects.using(using).filter(app_label__in=APPS),
        )
        for queryset in rows:
            _count, by_label = queryset.delete()
            removed.update(by_label)
        return +removed
