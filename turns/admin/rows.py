"""What the pages of turns share: links, and tables of rows that belong to a turn."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from governance.admin.formatting import NOTHING, format_time
from governance.admin.links import address_of_row, anchor
from governance.call_links import Link
from governance.labels import call_statuses, label_for
from turns.models import CancelRequest, Turn
from turns.models.labels import turn_statuses


def link(name: str, pk: Any, text: Any, *, reader: Any) -> SafeString | str:
    """Return a link to the page of a row, or its text alone for whoever may not see it. `name` is "app_model"."""
    return anchor(Link(text, address_of_row(reader, name, pk)))


def _cell(value: Any) -> Any:
    return format_time(value) if isinstance(value, datetime) else value


def table(heads: Sequence[Any], lines: Iterable[Sequence[Any]]) -> SafeString | str:
    """Return a table of cells, escaped; a dash where there are no lines."""
    rows = [
        format_html(
            "<tr>{}</tr>", format_html_join("", "<td>{}</td>", ((_cell(cell),) for cell in line))
        )
        for line in lines
    ]
    if not rows:
        return NOTHING
    head = format_html_join("", '<th scope="col">{}</th>', ((text,) for text in heads))
    body = format_html_join("", "{}", ((row,) for row in rows))
    return format_html("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>", head, body)


def outcome_text(request: CancelRequest) -> str:
    """Return in words what has become of a request to cancel: the status that its turn or call ended with."""
    known = [*turn_statuses(), *call_statuses()]
    return label_for(request.outcome, known) if request.outcome else _("not yet")


def turn_link(turn: Turn, *, reader: Any) -> SafeString | str:
    """Return a link to a turn's page: its number, whose it is, and its agent. A title is content, so it has none."""
    parts = (f"#{turn.number}", turn.conversation.owner.get_username(), turn.agent)
    return link("turns_turn", turn.pk, " · ".join(filter(None, parts)), reader=reader)
