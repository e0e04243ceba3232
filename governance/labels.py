"""Labels for choices: the admin shows them where rows and the wire have short names.

They are callables, so that a new name needs no migration. A name without a label is shown with spaces.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

from governance.core.calls import CallStatus, Disposition, ErrorType
from governance.core.cancel_reasons import CancelReason, CancelSource
from governance.core.deadline import Limit
from governance.core.policy import ApprovalRule, TimeoutSource

Choices = list[tuple[str, Any]]

_CALL_STATUSES: Mapping[str, Any] = {
    CallStatus.PENDING: _("waits to start"),
    CallStatus.AWAITING_APPROVAL: _("waits for a decision"),
    CallStatus.RUNNING: _("running"),
    CallStatus.CANCELLING: _("is being ended"),
    CallStatus.SUCCEEDED: _("succeeded"),
    CallStatus.FAILED: _("failed"),
    CallStatus.TIMED_OUT: _("timed out"),
    CallStatus.CANCELLED: _("cancelled"),
    CallStatus.DENIED: _("denied"),
    CallStatus.EXPIRED: _("nobody answered"),
    CallStatus.NOT_STARTED: _("not started"),
    CallStatus.ABANDONED: _("given up, may still run"),
    CallStatus.REPAIRED: _("lost, closed by a repair"),
}
ENDED_SINCE = _("given up, has ended since")  # an abandoned call whose end was seen
_ERROR_TYPES: Mapping[str, Any] = {
    ErrorType.TIMEOUT: _("time limit"),
    ErrorType.EXECUTION_ERROR: _("the tool failed"),
    ErrorType.INVALID_INPUT: _("arguments not accepted"),
    ErrorType.UNKNOWN_TOOL: _("no such tool"),
    ErrorType.DISABLED: _("switched off"),
    ErrorType.QUEUE_FULL: _("too many calls at once"),
    ErrorType.QUEUE_TIMEOUT: _("waited too long for its place"),
    ErrorType.EXPIRED: _("nobody answered"),
    ErrorType.NO_APPROVER: _("nobody could be asked"),
}
_DISPOSITIONS: Mapping[str, Any] = {
    Disposition.SETTLED: _("settled: it has ended"),
    Disposition.NOT_STARTED: _("not started: it never ran"),
    Disposition.INDETERMINATE: _("indeterminate: it may still run, or may have been applied"),
}
_TIMEOUT_SOURCES: Mapping[str, Any] = {
    TimeoutSource.HINT: _("asked for by the agent"),
    TimeoutSource.ARGUMENT: _("the call’s own argument"),
    TimeoutSource.OVERRIDE: _("admin, for this tool"),
    TimeoutSource.TOOL: _("the tool’s own"),
    TimeoutSource.DEFAULT: _("admin, default"),
    TimeoutSource.SETTING: _("this site’s setting"),
    TimeoutSource.BUILT_IN: _("built in"),
    TimeoutSource.MANUAL: _("set while it ran"),
}
_LIMITS: Mapping[str, Any] = {
    Limit.TOTAL: _("the call’s limit"),
    Limit.IDLE: _("the call’s idle limit"),
    Limit.TURN: _("the turn’s limit"),
    Limit.APPROVAL: _("the time to decide"),
}
_SOURCES: Mapping[str, Any] = {
    CancelSource.BUTTON: _("by button"),
    CancelSource.TYPED: _("typed"),
    CancelSource.VOICE: _("spoken"),
    CancelSource.API: _("by API"),
    CancelSource.ADMIN: _("in the admin"),
    CancelSource.POLICY: _("by a rule"),
}
_RULES: Mapping[str, Any] = {
    ApprovalRule.NEVER: _("never"),
    ApprovalRule.ONCE_PER_CONVERSATION: _("once per conversation"),
    ApprovalRule.ALWAYS: _("always"),
}
# What the tools that ship call themselves and ask; calls keep it in English.
TOOL_TEXTS: Mapping[str, Any] = {
    "Run a command": _("Run a command"),
    "Run this command on the server, without a sandbox?": _(
        "Run this command on the server, without a sandbox?"
    ),
    "Run this command in the sandbox of this server?": _(
        "Run this command in the sandbox of this server?"
    ),
    "Read a file": _("Read a file"),
    "List files": _("List files"),
    "Write a file": _("Write a file"),
    "Edit a file": _("Edit a file"),
    "Search the web": _("Search the web"),
    "Fetch a web page": _("Fetch a web page"),
    "Git status": _("Git status"),
    "Git diff": _("Git diff"),
    "Git log": _("Git log"),
    "Git commit": _("Git commit"),
    "Ask an agent": _("Ask an agent"),
    "Set an agent to work": _("Set an agent to work"),
    "End an agent’s work": _("End an agent’s work"),
    "Look at the session": _("Look at the session"),
    "Use a browser": _("Use a browser"),
    "Wait": _("Wait"),
}
_DECISIONS: Mapping[str, Any] = {
    "approved": _("approved"),
    "denied": _("denied"),
    "expired": _("nobody answered"),
    "cancelled": _("cancelled"),
    "interrupted": _("interrupted"),
}


def choices(names: Iterable[str], words: Mapping[str, Any]) -> Choices:
    """Return names with their words, in the order of the names."""
    return [(str(name), words.get(name, str(name).replace("_", " "))) for name in names]


def call_statuses() -> Choices:
    return choices(CallStatus, _CALL_STATUSES)


def error_types() -> Choices:
    """Return why a call may have no good result."""
    return choices(ErrorType, _ERROR_TYPES)


def dispositions() -> Choices:
    """Return what may be known of the work."""
    return choices(Disposition, _DISPOSITIONS)


def timeout_sources() -> Choices:
    """Return where a limit may have come from."""
    return choices(TimeoutSource, _TIMEOUT_SOURCES)


def limits() -> Choices:
    """Return which limit may have run out."""
    return choices(Limit, _LIMITS)


def cancel_reasons() -> Choices:
    """Return why something may have been ended."""
    return [(reason.value, _(reason.row.label)) for reason in CancelReason]


def cancel_sources() -> Choices:
    """Return by what means that may have been asked for."""
    return choices(CancelSource, _SOURCES)


def approval_rules() -> Choices:
    return choices(ApprovalRule, _RULES)


def decisions() -> Choices:
    """Return what may become of a question."""
    return choices(_DECISIONS, _DECISIONS)


def tool_text(stored: str) -> str:
    """Return a title or a question of a tool that ships in the active language; any other as it is."""
    return str(TOOL_TEXTS.get(stored, stored))


def label_for(name: str, known: Choices) -> str:
    """Return the label of a name, or the name itself if it is unknown."""
    return str(dict(known).get(name, name))
