"""Labels for the choices of fields in rows of turns, like those in `governance.labels`."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

from governance.labels import Choices, cancel_reasons, choices
from turns.core.repairs import CRASH, RepairKind
from turns.core.turns import DATABASE_AWAY, LEASE_LOST, STOOD_STILL, TurnStatus

_STATUSES: Mapping[str, Any] = {
    TurnStatus.QUEUED: _("queued"),
    TurnStatus.RUNNING: _("running"),
    TurnStatus.CANCELLING: _("stopping"),
    TurnStatus.COMPLETED: _("completed"),
    TurnStatus.CANCELLED: _("cancelled"),
    TurnStatus.FAILED: _("failed"),
    TurnStatus.TIMED_OUT: _("timed out"),
    TurnStatus.INTERRUPTED: _("interrupted"),
}
_SOURCES: Mapping[str, Any] = {
    "typed": _("typed"),
    "voice": _("spoken"),
    "continue": _("by the button “Continue”"),
    "agent": _("from another agent"),
    "sub_agent": _("from sub-agents, with their reports"),
}
_MODES: Mapping[str, Any] = {
    "now": _("immediately"),
    "after_step": _("after the step"),
    "report": _("after its report"),
}
_KINDS: Mapping[str, Any] = {
    RepairKind.MISSING_RESULT: _("a missing result was added"),
    RepairKind.SYNTHETIC_REPLACED: _("an added result was replaced by the real one"),
    RepairKind.DUPLICATE_RESULT: _("a second result was removed"),
    RepairKind.UNKNOWN_RESULT: _("a result without a call was removed"),
    RepairKind.AMBIGUOUS_RESULT: _("an ambiguous result was removed"),
    RepairKind.MOVED_RESULT: _("a result was moved next to its call"),
    RepairKind.MALFORMED_CALL: _("an incomplete call was removed"),
    RepairKind.DUPLICATE_CALL: _("a duplicate call was removed"),
    RepairKind.MOVED_CALL: _("a call was moved after the text"),
    RepairKind.EMPTY_MESSAGE: _("an empty message was removed"),
}
_FOUND_WHEN: Mapping[str, Any] = {
    "recovery": _("when the process was found dead"),
    "history_read": _("when the history was read"),
    "before_model_call": _("before a request to the chat model"),
}
_PROCESS_ENDINGS: Mapping[str, Any] = {
    "stopped": _("stopped: it exited on its own"),
    "died": _("died: it was killed or it crashed"),
    "silent": _("silent: it stopped renewing its lease"),
}


def turn_statuses() -> Choices:
    return choices(TurnStatus, _STATUSES)


def message_sources() -> Choices:
    return choices(_SOURCES, _SOURCES)


def cancel_modes() -> Choices:
    return choices(_MODES, _MODES)


def repair_kinds() -> Choices:
    return choices(RepairKind, _KINDS)


def repair_causes() -> Choices:
    return [
        (CRASH.name, _("its process was gone")),
        (LEASE_LOST.error_code, _("its process stopped responding")),
        (STOOD_STILL.error_code, _("its process was suspended")),
        (DATABASE_AWAY.error_code, _("its process could not reach the database")),
        *cancel_reasons(),
    ]


def process_endings() -> Choices:
    return choices(_PROCESS_ENDINGS, _PROCESS_ENDINGS)


def found_when() -> Choices:
    return choices(_FOUND_WHEN, _FOUND_WHEN)
