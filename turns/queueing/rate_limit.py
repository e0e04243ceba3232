"""How many messages a user may send in a minute. Counted where they are taken, so over all processes (P4; sync ORM)."""

from datetime import datetime
from typing import Any

from governance.prepared_statements import Select, Update, fields_of
from turns.conf import app_settings
from turns.exceptions import TooManyMessages
from turns.models import MessageTally

WINDOW = 60  # seconds

TALLY = Select(
    lambda user: MessageTally.objects.select_for_update().filter(user=user),
    **fields_of(MessageTally, "user"),
)
COUNT = Update(
    lambda user, times: (MessageTally.objects.filter(user=user), {"times": times}),
    **fields_of(MessageTally, "user", "times"),
)


def count_message(user_id: Any, *, now: datetime) -> None:
    """Count a message in the transaction that takes it; the row of its user is locked until that ends.

    `now` is the database's time.

    What is refused does not count, so waiting always helps.

    Raises:
        TooManyMessages: there were too many within the last minute.
    """
    tally = TALLY.first(user=user_id)
    if tally is None:
        rows = MessageTally.objects.select_for_update()
        tally, _is_new = rows.get_or_create(user_id=user_id)
    second = int(now.timestamp())
    recent = {at: count for at, count in tally.times if at > second - WINDOW}
    if sum(recent.values()) >= app_settings.MAX_MESSAGES_PER_MINUTE:
        raise TooManyMessages
    recent[second] = recent.get(second, 0) + 1
    COUNT.run(user=user_id, times=list(recent.items()))
