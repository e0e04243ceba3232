"""Services: the functions through which clients change conversations and turns."""

from turns.cancelling.commands import CancelReceipt
from turns.selectors import ConversationSummary
from turns.services.attachments import add_attachment, discard_attachment
from turns.services.calls import (
    DeadlineReceipt,
    DecisionReceipt,
    answer_tool,
    decide_tool,
    set_deadline,
)
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
from turns.services.edits import Deleted, delete_conversation, edit_conversation, forget_user
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
    "answer_tool",
    "continue_turn",
    "create_conversation",
    "decide_tool",
    "delete_conversation",
    "discard_attachment",
    "edit_conversation",
    "forget_user",
    "identify",
    "receive_message",
    "request_cancel",
    "request_tool_cancel",
    "resume_conversation",
    "set_deadline",
]
