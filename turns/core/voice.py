"""Results as the model of a voice turn reads them.

A cancelled call is an object that no model takes for a failure to repeat (C8).
"""

import json
from dataclasses import replace

from governance import ErrorType, ToolOutcome

_CANCELLED = (ErrorType.CANCELLED, ErrorType.NOT_STARTED)


def in_voice(outcome: ToolOutcome) -> ToolOutcome:
    """Return the outcome of a voice turn's call. That of a cancelled one is JSON with what is known of it."""
    if outcome.error_type not in _CANCELLED or outcome.ended_by is None:
        return outcome
    told = {
        "ok": False,
        "cancelled": True,
        "disposition": outcome.disposition.value,
        "error": {"message": outcome.result},
    }
    return replace(outcome, result=json.dumps(told, ensure_ascii=False))
