"""Search in long lists: full ids and names first, each along its own index.

Only the search for part of a conversation's title scans a table.
"""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from console import tools

Rows = QuerySet[Any]


def as_id(term: str) -> UUID | None:
    """Parse an id in any notation; None if the text is not an id."""
    try:
        return UUID(term)
    except ValueError:
        return None


def search(
    rows: Rows,
    term: str,
    *,
    id_fields: Iterable[str],
    fields: Iterable[Any],
    part: Callable[[Rows, str], Rows],
) -> Rows:
    """Return the rows whose first field with any match equals the term. If no field matches, return the rows of `part`.

    The fields are tried one by one, because a single condition with OR would read every row. Ids match in any notation.
    """
    term_id = as_id(term)
    ids = [(field, term_id) for field in id_fields if term_id is not None]
    for field, value in [*ids, *((str(field), term) for field in fields)]:
        matches = rows.filter(**{field: value})
        if matches.exists():
            return matches
    return rows.none() if term_id else part(rows, term)


def nothing(rows: Rows, term: str) -> Rows:
    """Return no rows, for lists that are not searched by part of a word."""
    return rows.none()


def part_of_tool(rows: Rows, term: str) -> Rows:
    """Return the rows of the tools of this site whose name contains the term."""
    names = [name for name in tools.known() if term.casefold() in name.casefold()]
    return rows.filter(tool_name__in=names)
