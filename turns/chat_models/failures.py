"""Failures of a provider. Each kind has its stable code, a sentence that says what to do, and whether to try again.

The sentences are English here, as rows keep them; readers get them in their language.
"""

from dataclasses import dataclass
from enum import StrEnum

from django.utils.translation import gettext_noop as _

from turns.core.exceptions import ChatModelError


class FailureKind(StrEnum):
    """What went wrong; the values are the stable codes on the wire."""

    KEY_MISSING = "chat_model_key_missing"
    NOT_INSTALLED = "chat_model_not_installed"
    KEY_REFUSED = "chat_model_key_refused"
    NOT_FOUND = "chat_model_not_found"
    QUOTA = "chat_model_quota"
    CONTEXT_TOO_LONG = "context_too_long"
    REJECTED = "chat_model_rejected"
    DECLINED = "chat_model_declined"
    BUSY = "chat_model_busy"
    UNAVAILABLE = "chat_model_unavailable"
    UNREACHABLE = "chat_model_unreachable"
    UNREADABLE = "chat_model_unreadable"
    SLOW = "chat_model_slow"
    STALLED = "chat_model_stalled"
    TIMED_OUT = "chat_model_timed_out"
    CONFLICT = "chat_model_conflict"
    TOO_LARGE = "chat_model_request_too_large"
    ENDED_EARLY = "chat_model_ended_early"
    MALFORMED_CALL = "chat_model_malformed_call"
    DROPPED = "chat_model_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Of whom a sentence speaks. `key` names the environment variable, `extra` the packages."""

    chat_model: str
    key: str = ""
    extra: str = ""


class ProviderFailure(ChatModelError):
    """A provider could not answer. `retry_after` in seconds, if the provider said when to come back."""

    def __init__(
        self, kind: FailureKind, message: str, *, retry_after: float | None = None
    ) -> None:
        super().__init__(kind.value, message)
        self.kind = kind
        self.retry_after = retry_after

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed in a moment."""
        return self.kind in _RETRYING

    @property
    def retry_reason(self) -> str:
        """Why the request is repeated, as the beginning of a sentence."""
        return _RETRYING[self.kind]


def failure(
    kind: FailureKind,
    subject: Subject,
    *,
    retry_after: float | None = None,
    seconds: float | None = None,
    has_begun: bool = False,
) -> ProviderFailure:
    """Return a failure with its sentence; nothing that a provider said is in it.

    `seconds`: the limit that ran out. `has_begun`: something was said before, and is kept.
    """
    sentence = _SENTENCES[kind] % {
        "chat_model": subject.chat_model,
        "key": subject.key,
        "extra": subject.extra,
        "seconds": f"{seconds or 0:g}",
    }
    if has_begun and kind in _RETRYING:
        sentence = _CUT_SHORT % {"reason": _RETRYING[kind]}
    elif kind is FailureKind.BUSY and retry_after:
        sentence = _BUSY_FOR % {"wait": span(retry_after)}
    return ProviderFailure(kind, sentence, retry_after=retry_after)


def span(seconds: float) -> str:
    """Return a span of time for people: whole seconds, or minutes where it is long."""
    whole = max(1, round(min(seconds, 2 * _LONGEST)))
    if whole < 120:
        return _SECONDS % {"seconds": whole}
    if whole <= _LONGEST:
        return _MINUTES % {"minutes": -(-whole // 60)}
    return _LONG


_SECONDS, _MINUTES, _LONG = _("%(seconds)s s"), _("%(minutes)s min"), _("more than a day")
_LONGEST = 86_400  # seconds that are told as a number of minutes
_RETRYING = {
    FailureKind.BUSY: _("The model is busy"),
    FailureKind.UNAVAILABLE: _("The model is not available"),
    FailureKind.UNREACHABLE: _("The model cannot be reached"),
    FailureKind.UNREADABLE: _("The model's answer could not be read"),
    FailureKind.TIMED_OUT: _("The model's provider ran out of time"),
    FailureKind.CONFLICT: _("The model's provider was at odds with another request"),
    FailureKind.MALFORMED_CALL: _("The model asked for a tool in a way that cannot be read"),
}

_CUT_SHORT = _(
    "%(reason)s, in the middle of an answer. What it said is kept; send “go on” to continue."
)
_BUSY_FOR = _("The model is busy: too many requests at once. Send your message again in %(wait)s.")
RETRYING_IN = _("%(reason)s; retrying in %(wait)s.")
_SENTENCES: dict[FailureKind, str] = {
    FailureKind.KEY_MISSING: _(
        "The chat model “%(chat_model)s” needs a key. An administrator can set %(key)s in the server's environment "
        "and restart it."
    ),
    FailureKind.NOT_INSTALLED: _(
        "The chat model “%(chat_model)s” needs packages that are not installed. An administrator can run "
        "pip install “django-turnkeeper[%(extra)s]” and restart the server."
    ),
    FailureKind.KEY_REFUSED: _(
        "The provider of the chat model “%(chat_model)s” refused the server's key. An administrator can check %(key)s."
    ),
    FailureKind.NOT_FOUND: _(
        "The provider knows no chat model “%(chat_model)s”. An administrator can correct its name."
    ),
    FailureKind.QUOTA: _(
        "The account at the provider of “%(chat_model)s” has no credit left. An administrator can add some."
    ),
    FailureKind.CONTEXT_TOO_LONG: _(
        "This conversation has become too long for the model. Start a new conversation, and repeat what matters."
    ),
    FailureKind.REJECTED: _(
        "The provider of “%(chat_model)s” did not accept the request. Start a new conversation; if that does not help, "
        "tell an administrator."
    ),
    FailureKind.DECLINED: _(
        "The model declined to answer. Say it in other words, or start a new conversation."
    ),
    FailureKind.BUSY: _(
        "The model is busy: too many requests at once. Send your message again in a minute."
    ),
    FailureKind.UNAVAILABLE: _(
        "The model is not available at the moment. Send your message again in a few minutes."
    ),
    FailureKind.UNREACHABLE: _(
        "The model cannot be reached. Send your message again in a minute; if that does not help, an administrator can "
        "check the server's network and the address of “%(chat_model)s”."
    ),
    FailureKind.UNREADABLE: _(
        "The model's answer could not be read. Send your message again; if that does not help, tell an administrator."
    ),
    FailureKind.SLOW: _(
        "The model did not begin to answer within %(seconds)s s. Send your message again, or ask for less at once."
    ),
    FailureKind.STALLED: _(
        "The model fell silent for %(seconds)s s in the middle of its answer. What it said is kept; send “go on” to "
        "continue."
    ),
    FailureKind.TIMED_OUT: _(
        "The provider of “%(chat_model)s” ran out of time before it had answered. Send your message again, or ask for "
        "less at once."
    ),
    FailureKind.CONFLICT: _(
        "The provider of “%(chat_model)s” could not take the request beside another one. Send your message again."
    ),
    FailureKind.TOO_LARGE: _(
        "The request is larger than the provider of “%(chat_model)s” takes. Send a shorter message or start a new "
        "conversation; if that does not help, an administrator can give the agent fewer tools."
    ),
    FailureKind.ENDED_EARLY: _(
        "The model ended its answer before it was finished. What it said is kept; send “go on” to continue."
    ),
    FailureKind.MALFORMED_CALL: _(
        "The model asked for a tool in a way that cannot be read; nothing was run. Send “go on” to let it try again."
    ),
    FailureKind.DROPPED: _(
        "The connection to the model broke in the middle of its answer. What it said is kept; send “go on” to continue."
    ),
}
# Rows keep them in English.
STORED = (
    *_SENTENCES.values(),
    *_RETRYING.values(),
    _CUT_SHORT,
    _BUSY_FOR,
    RETRYING_IN,
    _SECONDS,
    _MINUTES,
    _LONG,
)
