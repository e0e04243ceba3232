"""What clients may do to conversations and turns."""

from turns.cancelling.commands import CancelReceipt
from turns.selectors import ConversationSummary
from turns.services.attachments import add_attachment, discard_attachment
from turns.services.conversations import (
    Received,
    continue_turn,
    create_conversation,
    identify,
    receive_message,
    request_cancel,
    request_tool_cancel,
    resume_conversation,
)
from turns.services.decisions import DecisionReceipt, decide_tool
from turns.services.edits import Deleted, delete_conversation, edit_conversation
from turns.services.timeouts import DeadlineReceipt, set_deadline
from turns.storage.operations import OpOutcome

__all__ = [
    "CancelReceipt",
    "ConversationSummary",
    "DeadlineReceipt",
    "DecisionReceipt",
    "Deleted",
    "OpOutcome",
    "Received",
    "add_attachment",
    "continue_turn",
    "create_conversation",
    "decide_tool",
    "delete_conversation",
    "discard_attachment",
    "edit_conversation",
    "identify",
    "receive_message",
    "request_cancel",
    "request_tool_cancel",
    "resume_conversation",
    "set_deadline",
]
