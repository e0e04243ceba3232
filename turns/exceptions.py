"""What services and selectors of turns raise: a stable code and a sentence that is safe to show.

TurnsError
├── ConversationNotFound
├── TurnNotFound
├── ToolCallNotFound
├── ToolCallNotEnded
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

from django.utils.translation import gettext as _


class TurnsError(Exception):
    """Base of the errors that a client may see."""

    code = "error"

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class ConversationNotFound(TurnsError):
    """There is no such conversation, or it is somebody else's: the two look alike."""

    code = "conversation_not_found"

    def __init__(self) -> None:
        super().__init__(_("There is no such conversation."))


class TurnNotFound(TurnsError):
    """There is no such turn, it is somebody else's, or it has ended (C5)."""

    code = "turn_not_found"

    def __init__(self) -> None:
        # Part of the protocol, so never translated.
        super().__init__("Turn not found or already completed")


class ToolCallNotFound(TurnsError):
    """There is no such call in the turn, or it has ended."""

    code = "tool_call_not_found"

    def __init__(self) -> None:
        super().__init__(_("Tool call not found or already completed"))


class ToolCallNotEnded(TurnsError):
    """The call has no result yet."""

    code = "tool_call_not_ended"

    def __init__(self) -> None:
        super().__init__(
            _("This tool call has not ended yet. Ask for its result when it has ended.")
        )


class NotAllowed(TurnsError):
    """The user was signed out or deactivated since the request began."""

    code = "not_allowed"

    def __init__(self) -> None:
        super().__init__(_("You are not allowed to do this. Sign in again."))


class MessageRejected(TurnsError):
    """The message is empty or too long."""

    code = "message_rejected"


class AttachmentNotFound(TurnsError):
    """There is no such file, it is somebody else's, or it belongs to another conversation: all look alike."""

    code = "attachment_not_found"

    def __init__(self) -> None:
        super().__init__(_("There is no such file. Attach it again."))


class AttachmentRejected(TurnsError):
    """The file is too large, of another type, or cannot be read; or its owner has no room for it."""

    code = "attachment_rejected"


class ConversationParked(TurnsError):
    """The conversation begins no turn until a person lets it: its turns have ended with their processes (H4)."""

    code = "conversation_parked"

    def __init__(self) -> None:
        super().__init__(
            _(
                "This conversation is parked: the server ended several times while it worked on it. Resume it first,"
                " then send your message again."
            )
        )


class CannotContinue(TurnsError):
    """The turn was not interrupted, or something was said since: there is nothing to go on with."""

    code = "cannot_continue"

    def __init__(self) -> None:
        super().__init__(
            _(
                "Only the last turn can be continued, and only if it was interrupted. Send a message instead."
            )
        )


class CannotReplace(TurnsError):
    """The message that shall be replaced is none that a person has said in this conversation."""

    code = "cannot_replace"

    def __init__(self) -> None:
        super().__init__(_("Only a message of your own can be edited and sent again."))


class AlreadyReplaced(TurnsError):
    """Another message has taken the place of this one, or of one before it."""

    code = "already_replaced"

    def __init__(self) -> None:
        super().__init__(_("This message was replaced already. Edit the one that is shown."))


class ConversationBusy(TurnsError):
    """What goes on in the conversation, or for it, would be taken out of its history."""

    code = "conversation_busy"

    def __init__(self) -> None:
        super().__init__(
            _(
                "Something is still going on here. Wait for its end or cancel it, then send it again."
            )
        )


class QueueIsFull(TurnsError):
    """Too many messages of the conversation wait already (P4)."""

    code = "queue_full"

    def __init__(self) -> None:
        super().__init__(
            _(
                "Too many messages are waiting. Wait for an answer or cancel the turn, then send it again."
            )
        )


class TooManyMessages(TurnsError):
    """The user has sent more messages within a minute than the settings allow, in whatever conversations."""

    code = "too_many_messages"

    def __init__(self) -> None:
        super().__init__(_("Too many messages in a minute. Wait a moment, then send it again."))


class AgentUnavailable(TurnsError):
    """The agent that was asked for does not exist (any more), or is switched off."""

    code = "agent_unavailable"
