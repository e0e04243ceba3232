"""Labels for choices: the admin shows them in place of the short names in rows and on the wire.

The choices are callables, so that a new name needs no migration. A name without a label is shown with spaces in place
of underscores.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

from governance.core.calls import CallStatus, Disposition, Effects, ErrorType
from governance.core.cancel_reasons import CancelReason, CancelSource
from governance.core.deadline import Limit
from governance.core.histograms import End
from governance.core.policy import ApprovalRule, TimeoutSource

Choices = list[tuple[str, Any]]

_CALL_STATUSES: Mapping[str, Any] = {
    CallStatus.PENDING: _("waiting to start"),
    CallStatus.AWAITING_APPROVAL: _("waiting for a decision"),
    CallStatus.RUNNING: _("running"),
    CallStatus.CANCELLING: _("stopping"),
    CallStatus.SUCCEEDED: _("succeeded"),
    CallStatus.FAILED: _("failed"),
    CallStatus.TIMED_OUT: _("timed out"),
    CallStatus.CANCELLED: _("cancelled"),
    CallStatus.DENIED: _("denied"),
    CallStatus.EXPIRED: _("nobody answered"),
    CallStatus.NOT_STARTED: _("not started"),
    CallStatus.ABANDONED: _("abandoned, may still be running"),
    CallStatus.REPAIRED: _("lost; its outcome is unknown"),
}
ENDED_SINCE = _("abandoned, has since ended")  # an abandoned call whose end was observed
_ERROR_TYPES: Mapping[str, Any] = {
    ErrorType.TIMEOUT: _("time limit"),
    ErrorType.EXECUTION_ERROR: _("the tool failed"),
    ErrorType.INVALID_INPUT: _("invalid arguments"),
    ErrorType.UNKNOWN_TOOL: _("no such tool"),
    ErrorType.DISABLED: _("disabled"),
    ErrorType.NOT_STARTED: _("not started"),
    ErrorType.TOO_MANY_CALLS: _("too many calls in one answer"),
    ErrorType.QUEUE_FULL: _("too many calls were waiting"),
    ErrorType.QUEUE_TIMEOUT: _("waited too long for a free slot"),
    ErrorType.EXPIRED: _("nobody answered"),
    ErrorType.NO_APPROVER: _("no one could approve it"),
    ErrorType.FORBIDDEN: _("no permission"),
}
_DISPOSITIONS: Mapping[str, Any] = {
    Disposition.SETTLED: _("settled: it has ended"),
    Disposition.NOT_STARTED: _("not started: it never ran"),
    Disposition.INDETERMINATE: _(
        "indeterminate: it may still be running, or may have had an effect"
    ),
}
_EFFECTS: Mapping[str, Any] = {
    Effects.NONE: _("none"),
    Effects.POSSIBLE: _("possible"),
    Effects.CUT: _("stopped midway: it may have had an effect"),
}
_TIMEOUT_SOURCES: Mapping[str, Any] = {
    TimeoutSource.HINT: _("requested by the agent"),
    TimeoutSource.ARGUMENT: _("an argument of the call"),
    TimeoutSource.OVERRIDE: _("admin limit for this tool"),
    TimeoutSource.TOOL: _("the tool"),
    TimeoutSource.DEFAULT: _("admin default"),
    TimeoutSource.SETTING: _("this site’s setting"),
    TimeoutSource.BUILT_IN: _("built in"),
    TimeoutSource.MANUAL: _("set while it ran"),
}
_TIMEOUTS: Mapping[str, Any] = {
    End.TIMED_OUT: _("at the tool’s limit"),
    End.IDLE: _("at the idle limit"),
    End.HINT: _("at a limit that the agent requested"),
    End.MANUAL: _("at a limit set while it ran"),
    End.TURN: _("at the turn’s limit"),
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
    CancelSource.WITHDRAWN: _("withdrawn before it was sent"),
}
_RULES: Mapping[str, Any] = {
    ApprovalRule.NEVER: _("never"),
    ApprovalRule.ONCE_PER_CONVERSATION: _("once per conversation"),
    ApprovalRule.ALWAYS: _("always"),
}
# Titles and questions of the built-in tools. The rows of calls store them in English.
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
    "Start an agent": _("Start an agent"),
    "Stop an agent": _("Stop an agent"),
    "Check the session status": _("Check the session status"),
    "Read an earlier result": _("Read an earlier result"),
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
_KINDS: Mapping[str, Any] = {
    "limits": _("limits"),
    "agent": _("agent"),
    "mcp_server": _("MCP server"),
    "disconnects": _("disconnect policy"),
    "token": _("API token"),
    "cancel": _("cancel"),
    "decision": _("decision on a call"),
    "extension": _("limit of a running call"),
    "export": _("export"),
    "deletion": _("deletion"),
    "sign_in": _("sign-in of staff"),
}
_ACTIONS: Mapping[str, Any] = {
    "add": _("added"),
    "change": _("changed"),
    "delete": _("deleted"),
    "cancel": _("cancelled"),
    "approve": _("approved"),
    "deny": _("denied"),
    "answer": _("answered"),
    "decline": _("declined"),
    "export": _("exported"),
    "prune": _("pruned"),
    "forget": _("forgot a person"),
    "sign_in": _("signed in"),
}


def choices(names: Iterable[str], words: Mapping[str, Any]) -> Choices:
    """Return names with their labels, in the order of the names."""
    return [(str(name), words.get(name, str(name).replace("_", " "))) for name in names]


def call_statuses() -> Choices:
    return choices(CallStatus, _CALL_STATUSES)


def error_types() -> Choices:
    return choices(ErrorType, _ERROR_TYPES)


def dispositions() -> Choices:
    return choices(Disposition, _DISPOSITIONS)


def effects() -> Choices:
    return choices(Effects, _EFFECTS)


def timeout_sources() -> Choices:
    return choices(TimeoutSource, _TIMEOUT_SOURCES)


def limits() -> Choices:
    """Return the limits that may have ended a call, with their labels."""
    return choices(Limit, _LIMITS)


def timeouts() -> Choices:
    """Return the ways in which a call may have timed out, with their labels."""
    return choices(_TIMEOUTS, _TIMEOUTS)


def cancel_reasons() -> Choices:
    return [(reason.value, _(reason.row.label)) for reason in CancelReason]


def cancel_sources() -> Choices:
    return choices(CancelSource, _SOURCES)


def approval_rules() -> Choices:
    return choices(ApprovalRule, _RULES)


def decisions() -> Choices:
    """Return the possible ends of a question, with their labels."""
    return choices(_DECISIONS, _DECISIONS)


def activity_kinds() -> Choices:
    return choices(_KINDS, _KINDS)


def activity_actions() -> Choices:
    return choices(_ACTIONS, _ACTIONS)


def tool_text(text: str) -> str:
    """Return a built-in tool's title or question in the active language, and any other text unchanged."""
    return str(TOOL_TEXTS.get(text, text))


def label_for(name: str, labels: Choices) -> str:
    """Return the label of a name, or the name itself if it is unknown."""
    return str(dict(labels).get(name, name))
