"""The exceptions that the services and selectors of turns raise: each has a stable code and a sentence that is safe to
show.

TurnsError
├── ConversationNotFound
├── TurnNotFound
├── ToolCallNotFound
├── ToolCallNotEnded
├── InvalidAnswer
├── NotAllowed
├── MessageRejected
├── ConversationParked
├── CannotContinue
├── CannotReplace
├── AlreadyReplaced
├── ConversationBusy
├── AgentUnavailable
├── AttachmentNotFound
├── AttachmentRejected
├── TooManyMessages
└── QueueIsFull
"""

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


class TurnsError(Exception):
    """The base class of errors that clients may see."""

    code = "error"
    text: str | Promise = ""  # for errors that always have the same sentence

    def __init__(self, sentence: str = "") -> None:
        self.sentence = sentence or str(self.text)  # in the active language
        super().__init__(self.sentence)


class ConversationNotFound(TurnsError):
    """The conversation does not exist or belongs to another user; clients cannot tell which."""

    code = "conversation_not_found"
    text = _("There is no such conversation.")


class TurnNotFound(TurnsError):
    """The turn does not exist, belongs to another user, or has ended (C5)."""

    code = "turn_not_found"
    # It is part of the protocol and therefore never translated.
    text = "Turn not found or already completed"


class ToolCallNotFound(TurnsError):
    """The turn has no such call, or the call has ended."""

    code = "tool_call_not_found"
    text = _("Tool call not found or already completed")


class ToolCallNotEnded(TurnsError):
    """The call has no result yet."""

    code = "tool_call_not_ended"
    text = _("This tool call has not ended yet. Its result will be available when it ends.")


class InvalidAnswer(TurnsError):
    """The answer does not fit its form."""

    code = "invalid_answer"


class NotAllowed(TurnsError):
    """The user is not signed in, was deleted or deactivated, or may not do this."""

    code = "not_allowed"
    text = _("You are not allowed to do this. Sign in again.")


class MessageRejected(TurnsError):
    """The request is invalid, for example because its message is empty or too long."""

    code = "message_rejected"


class AttachmentNotFound(TurnsError):
    """The file does not exist, or belongs to another user or conversation; clients cannot tell which."""

    code = "attachment_not_found"
    text = _("There is no such file. Attach it again.")


class AttachmentRejected(TurnsError):
    """The file is too large, unsupported or unreadable, or it would exceed its owner's quota."""

    code = "attachment_rejected"


class ConversationParked(TurnsError):
    """The conversation starts no turns until a person resumes it, because its turns ended with their processes (H4)."""

    code = "conversation_parked"
    text = _(
        "This conversation is paused because the server stopped unexpectedly several times while working on it. Resume it, then send your message again."
    )


class CannotContinue(TurnsError):
    """The turn was not interrupted, or the conversation has continued since."""

    code = "cannot_continue"
    text = _(
        "Only the last task can be continued, and only if it was interrupted. Send a message instead."
    )


class CannotReplace(TurnsError):
    """The message to replace was not sent by a person in this conversation."""

    code = "cannot_replace"
    text = _("You can edit and resend only your own messages.")


class AlreadyReplaced(TurnsError):
    """Another message has replaced this message, or an earlier message of the conversation."""

    code = "already_replaced"
    text = _("This message has already been replaced. Edit the one that is shown.")


class ConversationBusy(TurnsError):
    """A message cannot be replaced while a turn of its conversation or of its sub-agents is active."""

    code = "conversation_busy"
    text = _(
        "The agent is still working here. Wait until it has finished or cancel it, then send your message again."
    )


class QueueIsFull(TurnsError):
    """The conversation has too many queued messages (P4)."""

    code = "queue_full"
    text = _(
        "Too many messages are waiting. Wait for an answer or cancel the task, then send your message again."
    )


class TooManyMessages(TurnsError):
    """The user has sent too many messages within a minute, in all conversations."""

    code = "too_many_messages"
    text = _("Too many messages in a minute. Wait a moment, then send your message again.")


class AgentUnavailable(TurnsError):
    """The requested agent does not exist, is disabled, or is restricted to other people."""

    code = "agent_unavailable"
