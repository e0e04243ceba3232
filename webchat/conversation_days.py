"""The days under which a list of conversations stands: pinned ones, today, yesterday, the last week, earlier."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from turns.selectors import ConversationSummary

DAYS: dict[str, Promise] = {
    "pinned": _("Pinned"),
    "today": _("Today"),
    "yesterday": _("Yesterday"),
    "week": _("Last 7 days"),
    "earlier": _("Earlier"),
}


@dataclass(frozen=True, slots=True)
class Day:
    """A heading in the list, and what stands below it."""

    key: str
    conversations: list[ConversationSummary]

    @property
    def label(self) -> Promise:
        return DAYS[self.key]


def by_day(conversations: Iterable[ConversationSummary]) -> list[Day]:
    """Return conversations under their days; each keeps its place among those of its day."""
    today = timezone.localdate()
    days: dict[str, list[ConversationSummary]] = {key: [] for key in DAYS}
    for conversation in conversations:
        days[_key(conversation, today=today)].append(conversation)
    return [Day(key, found) for key, found in days.items() if found]


def _key(conversation: ConversationSummary, *, today: date) -> str:
    if conversation.is_pinned:
        return "pinned"
    age = today - timezone.localdate(conversation.updated_at)
    if age < timedelta(days=1):
        return "today"
    if age < timedelta(days=2):
        return "yesterday"
    return "week" if age < timedelta(days=7) else "earlier"
