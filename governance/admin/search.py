"""Search in long lists: whole ids and names first, each along its own index.

No search reads a table to find a part of a word.
"""

from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.http import HttpRequest

from governance import selectors
from governance.admin.readonly import ReadOnlyAdmin
from governance.models import ToolPolicy

USERNAME = (
    get_user_model().USERNAME_FIELD
)  # what people sign in with: a user name, an e-mail address


class ExactSearchAdmin(ReadOnlyAdmin):
    """Rows that are found by a whole id or name; the first of `id_fields` and `search_fields` that finds any counts.

    One condition with OR over all of them would read every row.
    """

    id_fields: tuple[str, ...] = ()  # ids in any notation, whatever form the database keeps them in

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Look the term up in one field after the other."""
        term = search_term.strip()
        if not term:
            return queryset, False
        wanted = as_id(term)
        ids = [(field, wanted) for field in self.id_fields if wanted is not None]
        for field, value in [*ids, *((str(field), term) for field in self.search_fields)]:
            rows = queryset.filter(**{field: value})
            if rows.exists():
                return rows, False
        return queryset.none() if wanted else self.search_part(request, queryset, term), False

    def search_part(
        self, request: HttpRequest, queryset: QuerySet[Any], term: str
    ) -> QuerySet[Any]:
        """Find what the term is only a part of; nothing unless a list says what."""
        return queryset.none()


class ToolSearchAdmin(ExactSearchAdmin):
    """Rows with a `tool_name`."""

    def search_part(
        self, request: HttpRequest, queryset: QuerySet[Any], term: str
    ) -> QuerySet[Any]:
        """Find the tools of this site with the term in their names."""
        names = [name for name in known_tools() if term.casefold() in name.casefold()]
        return queryset.filter(tool_name__in=names)


def known_tools() -> list[str]:
    """Return the names of all tools that this site offers or has limits for, sorted."""
    offered = {tool.name for tool in selectors.offered_tools()}
    return sorted(offered.union(ToolPolicy.objects.values_list("tool_name", flat=True)) - {""})


def as_id(term: str) -> UUID | None:
    """Return the id that a text is, in any notation; None if it is none."""
    try:
        return UUID(term)
    except ValueError:
        return None
