"""Choices of turns in words, as in `governance.labels`."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

from governance.labels import Choices, cancel_reasons, choices
from turns.core.repairs import CRASH, RepairKind
from turns.core.turns import TurnStatus

_STATUSES: Mapping[str, Any] = {
    TurnStatus.QUEUED: _("waits for its turn"),
    TurnStatus.RUNNING: _("running"),
    TurnStatus.CANCELLING: _("is being ended"),
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
    "sub_agent": _("brings reports of sub-agents"),
}
_MODES: Mapping[str, Any] = {
    "now": _("at once"),
    "after_step": _("after the step"),
    "report": _("after its report"),
}
_KINDS: Mapping[str, Any] = {
    RepairKind.MISSING_RESULT: _("a result was missing: one was added"),
    RepairKind.SYNTHETIC_REPLACED: _("the real result has replaced an added one"),
    RepairKind.DUPLICATE_RESULT: _("a second result was removed"),
    RepairKind.UNKNOWN_RESULT: _("a result without a call was removed"),
    RepairKind.AMBIGUOUS_RESULT: _("a result that could belong to several calls was removed"),
    RepairKind.MOVED_RESULT: _("a result was put next to its call"),
    RepairKind.MALFORMED_CALL: _("a call that was cut off was removed"),
    RepairKind.DUPLICATE_CALL: _("a second call of the same id was removed"),
    RepairKind.MOVED_CALL: _("a call was put behind the text"),
    RepairKind.EMPTY_MESSAGE: _("an empty message was removed"),
}
_FOUND_WHEN: Mapping[str, Any] = {
    "recovery": _("when the process was found dead"),
    "history_read": _("when the history was read"),
    "before_model_call": _("before the chat model was asked"),
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
    return [(CRASH.name, _("its process was gone")), *cancel_reasons()]


def found_when() -> Choices:
    return choices(_FOUND_WHEN, _FOUND_WHEN)
