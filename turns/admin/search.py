"""Search in the admin of turns: by a whole id in any notation, or by what else a list names."""

from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from governance.admin.readonly import ReadOnlyAdmin

NAME = get_user_model().USERNAME_FIELD  # what people sign in with: a user name, an e-mail address


class IdSearchAdmin(ReadOnlyAdmin):
    """Rows that are found by the ids in `id_fields`, whatever form the database keeps them in."""

    id_fields: tuple[str, ...] = ()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Look an id up as an id; Django would compare it as text with what the database stores."""
        term = search_term.strip()
        try:
            wanted = UUID(term)
        except ValueError:
            return super().get_search_results(request, queryset, search_term)
        texts = [(name, term) for name in self.search_fields if name.endswith("__exact")]
        ids = [(name, wanted) for name in self.id_fields]
        return queryset.filter(Q(*ids, *texts, _connector=Q.OR)), False
