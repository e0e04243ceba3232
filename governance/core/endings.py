"""Why the wait for a call's body ends; the first decision counts (invariant 4)."""

from dataclasses import dataclass
from enum import StrEnum

from governance.core.cancellation import Cancellation
from governance.core.deadline import Limit


class EndingKind(StrEnum):
    """Why the wait for a body ends."""

    BODY = "body"
    TIMEOUT = "timeout"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The decision: the body ended, a limit ran out, or a cancel was requested."""

    kind: EndingKind
    cancellation: Cancellation | None = None
    limit: Limit = Limit.TOTAL
    seconds: float = 0.0


BODY_ENDED = Ending(kind=EndingKind.BODY)
"""The one ending of its kind, so `is` tells it."""
