"""How many messages a user may send in a minute: counted where they are taken, so over all processes (P4; sync ORM)."""

from typing import Any

from governance.db_clock import database_now
from turns.conf import app_settings
from turns.exceptions import TooManyMessages
from turns.models import MessageTally

WINDOW = 60  # seconds


def count_message(user_id: Any) -> None:
    """Count a message in the transaction that takes it; the row of its user is locked until that ends.

    What is refused does not count, so waiting always helps.

    Raises:
        TooManyMessages: there were too many within the last minute.
    """
    tally, _is_new = MessageTally.objects.select_for_update().get_or_create(user_id=user_id)
    now = int(database_now().timestamp())
    recent = {at: count for at, count in tally.times if at > now - WINDOW}
    if sum(recent.values()) >= app_settings.MAX_MESSAGES_PER_MINUTE:
        raise TooManyMessages
    recent[now] = recent.get(now, 0) + 1
    tally.times = list(recent.items())
    tally.save(update_fields=["times"])
