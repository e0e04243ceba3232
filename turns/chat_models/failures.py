"""The failures of providers. Each kind has a stable code and a sentence that explains what to do; some can be retried.

Rows store the sentences in English; they are translated when they are shown.
"""

from dataclasses import dataclass
from enum import StrEnum

from django.utils.translation import gettext_noop as _

from turns.core.exceptions import ChatModelError


class FailureKind(StrEnum):
    """The kinds of failure; the values are the stable codes in the wire format."""

    KEY_MISSING = "chat_model_key_missing"
    NOT_INSTALLED = "chat_model_not_installed"
    KEY_REFUSED = "chat_model_key_refused"
    NOT_FOUND = "chat_model_not_found"
    WRONG_API = "chat_model_wrong_api"
    QUOTA = "chat_model_quota"
    CONTEXT_TOO_LONG = "context_too_long"
    REJECTED = "chat_model_rejected"
    NO_TOOLS = "chat_model_without_tools"
    NO_MEDIA = "chat_model_without_media"
    DECLINED = "chat_model_declined"
    BUSY = "chat_model_busy"
    UNAVAILABLE = "chat_model_unavailable"
    UNREACHABLE = "chat_model_unreachable"
    UNREADABLE = "chat_model_unreadable"
    SLOW = "chat_model_slow"
    STALLED = "chat_model_stalled"
    OVERTIME = "chat_model_overtime"
    TIMED_OUT = "chat_model_timed_out"
    CONFLICT = "chat_model_conflict"
    TOO_LARGE = "chat_model_request_too_large"
    ENDED_EARLY = "chat_model_ended_early"
    MALFORMED_CALL = "chat_model_malformed_call"
    DROPPED = "chat_model_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The names used in a failure message: the chat model, the environment variable with its `key`, and the `extra`
    with its packages. `key` and `extra` are empty if they are unknown.
    """

    chat_model: str
    key: str = ""
    extra: str = ""


class ProviderFailure(ChatModelError):
    """A provider could not answer. `retry_after` is the wait in seconds that the provider requested, if any."""

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        retry_after: float | None = None,
        detail: str = "",
        has_begun: bool = False,
    ) -> None:
        super().__init__(kind.value, message, detail=detail)
        self.kind = kind
        self.retry_after = retry_after
        self.is_too_long = kind in _TOO_LONG and not has_begun
        if has_begun:
            self.cut_off = _RETRYING.get(kind) or _BROKEN_OFF.get(kind, "")

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in _RETRYING

    @property
    def retry_reason(self) -> str:
        """The reason for the retry, as the start of a sentence."""
        return _RETRYING[self.kind]


def failure(
    kind: FailureKind,
    subject: Subject,
    *,
    retry_after: float | None = None,
    seconds: float | None = None,
    has_begun: bool = False,
    detail: str = "",
) -> ProviderFailure:
    """Return a failure with its sentence. The provider's own message is only in its `detail`.

    `seconds` is the limit that was reached. `has_begun` is true if the answer had already begun; its text so far is
    kept.
    """
    template = _SENTENCES[kind]
    if kind is FailureKind.KEY_REFUSED and not subject.key:
        template = _UNNAMED_KEY_REFUSED
    sentence = template % {
        "chat_model": subject.chat_model,
        "key": subject.key,
        "extra": subject.extra,
        "seconds": f"{seconds or 0:g}",
    }
    if has_begun and kind in _RETRYING:
        sentence = _CUT_SHORT % {"reason": _RETRYING[kind]}
    elif kind is FailureKind.BUSY and retry_after:
        sentence = _BUSY_FOR % {"wait": span(retry_after)}
    return ProviderFailure(
        kind, sentence, retry_after=retry_after, detail=detail, has_begun=has_begun
    )


def span(seconds: float) -> str:
    """Return a duration as text: in whole seconds, or in minutes if it is long."""
    whole = max(1, round(min(seconds, 2 * _LONGEST)))
    if whole < 120:
        return _SECONDS % {"seconds": whole}
    if whole <= _LONGEST:
        return _MINUTES % {"minutes": -(-whole // 60)}
    return _LONG


_TOO_LONG = {FailureKind.CONTEXT_TOO_LONG, FailureKind.TOO_LARGE}
_SECONDS, _MINUTES, _LONG = _("%(seconds)s s"), _("%(minutes)s min"), _("more than a day")
_LONGEST = 86_400  # the longest time, in seconds, that is shown in minutes
_RETRYING = {
    FailureKind.BUSY: _("The model is busy"),
    FailureKind.UNAVAILABLE: _("The model is not available"),
    FailureKind.UNREACHABLE: _("The model cannot be reached"),
    FailureKind.UNREADABLE: _("The model's answer could not be read"),
    FailureKind.TIMED_OUT: _("The model's provider timed out"),
    FailureKind.CONFLICT: _("The request conflicted with another one at the model's provider"),
    FailureKind.MALFORMED_CALL: _("The model's tool call could not be read"),
}
TOO_LATE = _("The model took too long to answer")
NOT_OFFERED = _("The model is no longer offered")
# Failures after which another model may answer if the answer had not begun.
FALLBACK_REASONS: dict[FailureKind, str] = {
    FailureKind.KEY_MISSING: _("The model's key is missing"),
    FailureKind.NOT_INSTALLED: _("The model's packages are not installed"),
    FailureKind.KEY_REFUSED: _("The model's provider refused the server's key"),
    FailureKind.NOT_FOUND: NOT_OFFERED,
    FailureKind.WRONG_API: NOT_OFFERED,
    FailureKind.QUOTA: _("The account at the model's provider has no credit left"),
    FailureKind.SLOW: TOO_LATE,
    FailureKind.STALLED: TOO_LATE,
    FailureKind.OVERTIME: TOO_LATE,
    FailureKind.DROPPED: _("The connection to the model was lost"),
    **{
        kind: reason for kind, reason in _RETRYING.items() if kind is not FailureKind.MALFORMED_CALL
    },
}
FELL_BACK = "fallback"
MODEL_INSTEAD = _("%(reason)s, so “%(chat_model)s” answers instead.")
ANOTHER_MODEL_INSTEAD = _("%(reason)s, so another model answers instead.")
# Why an answer broke off. Before an answer has begun, these failures do not occur, or are not retried.
_BROKEN_OFF = {
    FailureKind.DROPPED: _("The connection to the model was lost"),
    FailureKind.STALLED: _("The model stopped responding"),
}

_CUT_SHORT = _(
    "%(reason)s, in the middle of an answer. The text so far is kept; send “go on” to continue."
)
_UNNAMED_KEY_REFUSED = _(
    "The provider of the chat model “%(chat_model)s” refused the server's key. An administrator can check the key."
)
_BUSY_FOR = _(
    "The model is busy: it received too many requests. Send your message again in %(wait)s."
)
RETRYING_IN = _("%(reason)s; retrying in %(wait)s.")
_SENTENCES: dict[FailureKind, str] = {
    FailureKind.KEY_MISSING: _(
        "The chat model “%(chat_model)s” needs a key. An administrator can set %(key)s in the server's environment "
        "and restart it."
    ),
    FailureKind.NOT_INSTALLED: _(
        "The chat model “%(chat_model)s” needs packages that are not installed. An administrator can run "
        'pip install "django-turnkeeper[%(extra)s]" (in a clone: make base EXTRAS=%(extra)s) and restart the server.'
    ),
    FailureKind.KEY_REFUSED: _(
        "The provider of the chat model “%(chat_model)s” refused the server's key. An administrator can check %(key)s."
    ),
    FailureKind.NOT_FOUND: _(
        "The provider has no chat model “%(chat_model)s”. An administrator can correct its name."
    ),
    FailureKind.WRONG_API: _(
        "The provider does not offer “%(chat_model)s” through this API. An administrator can choose another API with a "
        "prefix such as “openai-responses:” or “openai-chat:”, or another model."
    ),
    FailureKind.QUOTA: _(
        "The account at the provider of “%(chat_model)s” has no credit left. An administrator can add some."
    ),
    FailureKind.CONTEXT_TOO_LONG: _(
        "The request does not fit into the context window of “%(chat_model)s”, although older content was left out. "
        "Send a shorter message; if that does not help, an administrator can give the agent fewer tools or another model."
    ),
    FailureKind.REJECTED: _(
        "The provider of “%(chat_model)s” rejected the request, and repeating it will not help. An administrator can "
        "read the provider's message in the admin."
    ),
    FailureKind.NO_TOOLS: _(
        "The chat model “%(chat_model)s” cannot use tools. An administrator can choose another one for the agent, or give "
        "the agent no tools."
    ),
    FailureKind.NO_MEDIA: _(
        "The chat model “%(chat_model)s” cannot read a file of this conversation. Start a new conversation without it, "
        "or edit the message and remove it. An administrator can set which files the model accepts."
    ),
    FailureKind.DECLINED: _(
        "The model declined to answer. Rephrase your message, or start a new conversation."
    ),
    FailureKind.BUSY: _(
        "The model is busy: it received too many requests. Send your message again in a minute."
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
        "The model did not start to answer within %(seconds)s s. Send your message again, or ask for less in one message."
    ),
    FailureKind.STALLED: _(
        "The model stopped responding for %(seconds)s s in the middle of its answer. The text so far is kept; send “go on” to "
        "continue."
    ),
    FailureKind.OVERTIME: _(
        "The model did not finish its answer within %(seconds)s s. The text so far is kept; send “go on” to continue, "
        "or ask for less in one message."
    ),
    FailureKind.TIMED_OUT: _(
        "The provider of “%(chat_model)s” timed out before it answered. Send your message again, or ask for less in "
        "one message."
    ),
    FailureKind.CONFLICT: _(
        "The request conflicted with another one at the provider of “%(chat_model)s”. Send your message again."
    ),
    FailureKind.TOO_LARGE: _(
        "The request is too large for the provider of “%(chat_model)s”. Send a shorter message or start a new "
        "conversation; if that does not help, an administrator can give the agent fewer tools."
    ),
    FailureKind.ENDED_EARLY: _(
        "The model ended its answer early. The text so far is kept; send “go on” to continue."
    ),
    FailureKind.MALFORMED_CALL: _(
        "The model's tool call could not be read, so nothing was run. Send “go on” to let the model try again."
    ),
    FailureKind.DROPPED: _(
        "The connection to the model was lost in the middle of its answer. The text so far is kept; send “go on” to continue."
    ),
}
# The sentences that rows store in English.
STORED = (
    _UNNAMED_KEY_REFUSED,  # before the sentence that would match the same text
    *_SENTENCES.values(),
    *_RETRYING.values(),
    *FALLBACK_REASONS.values(),
    MODEL_INSTEAD,
    ANOTHER_MODEL_INSTEAD,
    *_BROKEN_OFF.values(),
    _CUT_SHORT,
    _BUSY_FOR,
    RETRYING_IN,
    _SECONDS,
    _MINUTES,
    _LONG,
)
