"""The event log on a turn's page, in parts of a fixed size with links to earlier and later events."""

import json
from typing import Any

from django.utils.dateparse import parse_datetime
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from console.formats import format_time, table
from console.links import Link, anchors
from governance import shortened
from turns.events import log
from turns.models import Turn

SHOWN = 500
AFTER = "events_after"
_PLACE = "event-log"
_NAMED = {"seq", "at", "type", "turn_id"}
_FIELDS_SHOWN = 500


def asked(query: Any) -> int:
    """Return the number of the event after which the page starts; 0 if the query has no valid one."""
    value = query.get(AFTER, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else 0


def events_of(turn: Turn, query: Any) -> SafeString | str:
    after = asked(query)
    events = log.read_turn(turn.pk, after=after, limit=SHOWN + 1)
    page, has_more = events[:SHOWN], len(events) > SHOWN
    lines = [(event["seq"], _time(event["at"]), event["type"], _fields(event)) for event in page]
    log_table = table([_("number"), _("at"), _("type"), _("fields")], lines)
    links = {}
    if after:
        links["earlier"] = Link(_("Earlier events"), _address(query, _begin_before(turn, after)))
    if has_more:
        links["later"] = Link(_("Later events"), _address(query, page[-1]["seq"]))
    if not links:
        return log_table
    pages = format_html("<p>{}</p>", anchors(links, links))
    return format_html('<div id="{}">{}{}{}</div>', _PLACE, pages, log_table, pages)


def _begin_before(turn: Turn, after: int) -> int:
    """Return the event number after which the previous part starts."""
    before = log.numbers_of_turn(turn.pk, until=after)
    return before[SHOWN : SHOWN + 1].first() or 0


def _address(query: Any, after: int) -> str:
    parameters = query.copy()
    parameters[AFTER] = after
    return f"?{parameters.urlencode()}#{_PLACE}"


def _time(at: str) -> SafeString | str:
    return format_time(parse_datetime(at), with_milliseconds=True)


def _fields(event: dict[str, Any]) -> str:
    fields = {name: value for name, value in event.items() if name not in _NAMED}
    return shortened(json.dumps(fields, ensure_ascii=False), limit=_FIELDS_SHOWN)
