"""The services of conversations and turns: create, send, continue, resume, cancel.

Each service checks the user's permissions, stores everything in one transaction, publishes it, and notifies the
supervisor. None of them waits for a turn, a tool or a model (invariant 1).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID, uuid4

from django.db import IntegrityError
from django.utils.translation import get_language, override
from django.utils.translation import gettext as _

from governance import CancelSource, checkpoint, is_cancel_intent
from governance.db import run_in_db_thread, run_in_query_thread
from governance.sanitize import sanitize_line, sanitize_text
from turns.agents.lookup import default_name, find_agent
from turns.cancelling import commands
from turns.cancelling.commands import CancelCommand, CancelReceipt
from turns.cancelling.descendants import inherited
from turns.conf import app_settings
from turns.core.turns import PendingCancel
from turns.events import sinks
from turns.events.notifications import notify
from turns.exceptions import MessageRejected, TurnsError
from turns.models import Conversation
from turns.processes.background import shielded
from turns.queueing import parking, queue
from turns.running import runtime
from turns.selectors import ConversationSummary
from turns.storage import operations
from turns.storage.access import (
    Asker,
    User,
    conversation_for,
    identified,
    may_cancel_any,
    reload,
)
from turns.storage.operations import OpOutcome

logger = logging.getLogger(__name__)

CLIENT_ID_LENGTH = 64
STORE_PATIENCE = 20.0  # seconds of retries to store a cancel that has already taken effect
STORE_PAUSE = 0.5
# The text of a message that has only files. It is not empty, because empty text marks a pruned message.
FILES_ALONE = " "


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The result of sending a message: a queued turn, an already known turn, or an applied cancel word."""

    conversation_id: UUID
    turn_id: UUID
    is_new: bool = True
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    text: str
    source: str
    client_id: str | None
    replaces: UUID | None
    attachments: Sequence[UUID]


async def create_conversation(
    *, user: User, title: str = "", agent: str = "", conversation_id: UUID | None = None
) -> ConversationSummary:
    """Create a conversation with an agent. Without `agent`, each message is answered by the agent that is the default
    when the message is sent.

    The caller may choose the id; a second request with the same id returns the existing conversation.

    Raises:
        AgentUnavailable: no agent has this name, or it is disabled or restricted to other people.
        ConversationNotFound: the id belongs to another user's conversation, or to a deleted one.
        NotAllowed: the user was deleted or deactivated.
    """
    return await _create_conversation(
        conversation_id or uuid4(),
        user,
        sanitize_line(title, limit=200),
        sanitize_text(agent.strip(), limit=64),
    )


@shielded
async def receive_message(
    *,
    conversation_id: UUID,
    user: Asker,
    text: str,
    client_id: str | None = None,
    source: str = "typed",
    replaces: UUID | None = None,
    attachments: Sequence[UUID] = (),
) -> Received:
    """Queue a turn for a message. If the message is a cancel word and a turn is active, cancel that turn instead (C6).

    With `replaces`, the message replaces the message of that turn. That turn and all later ones are dropped
    from the history but stay visible. This requires that no turn is active. `attachments` are the ids of files that the
    user attached. `user` may be a function that returns the user. It is called in the thread that stores the message,
    which saves a switch between threads.

    Raises:
        AttachmentNotFound, AttachmentRejected,
        ConversationNotFound, MessageRejected, TooManyMessages, QueueIsFull, AgentUnavailable, NotAllowed
        CannotReplace, AlreadyReplaced, ConversationBusy: the turn in `replaces` cannot be replaced.
    """
    await runtime.ensure_started()
    if is_cancel_intent(text, also=app_settings.CANCEL_WORDS):
        user = await identify(user)
        received = await _apply_cancel_word(
            user, conversation_id, text, source=source, client_id=client_id
        )
        if received is not None:
            return received
    message = _Message(
        text=text, source=source, client_id=client_id, replaces=replaces, attachments=attachments
    )
    enqueued = await _enqueue(user, conversation_id, message, language=get_language())
    checkpoint("after_enqueue")
    await sinks.publish(conversation_id, enqueued.events)
    return Received(
        conversation_id=conversation_id, turn_id=enqueued.turn.pk, is_new=enqueued.is_new
    )


@shielded
async def continue_turn(*, turn_id: UUID, user: User) -> Received:
    """Continue an interrupted turn in a new turn. A second request returns the same new turn (H4).

    Raises:
        TurnNotFound, CannotContinue, ConversationParked, TooManyMessages, QueueIsFull, AgentUnavailable, NotAllowed
    """
    await runtime.ensure_started()
    enqueued = await _continue(turn_id, user)
    turn = enqueued.turn
    await sinks.publish(turn.conversation_id, enqueued.events)
    return Received(conversation_id=turn.conversation_id, turn_id=turn.pk, is_new=enqueued.is_new)


@shielded
async def resume_conversation(*, conversation_id: UUID, user: User) -> bool:
    """Resume a parked conversation; return False if it was not parked (H4).

    Raises: ConversationNotFound, NotAllowed
    """
    events = await _resume(conversation_id, user)
    await sinks.publish(conversation_id, events or [])
    return events is not None


@shielded
async def request_cancel(
    *,
    turn_id: UUID,
    user: User,
    source: CancelSource,
    note: str = "",
    mode: str = "now",
    op_id: str | None = None,
) -> CancelReceipt:
    """Cancel a turn and the turns queued behind it (C1, C2, C5).

    The request is stored when this returns. The turn ends within a second if the process that runs it is alive.
    """
    command = CancelCommand(user=user, source=source, note=note, mode=mode, op_id=op_id)
    return await _cancel_turn(turn_id, command)


@shielded
async def request_tool_cancel(
    *,
    turn_id: UUID,
    tool_id: str,
    user: User,
    source: CancelSource,
    note: str = "",
    op_id: str | None = None,
) -> CancelReceipt:
    """Cancel one call. The turn and its other calls continue (C3)."""
    command = CancelCommand(user=user, source=source, note=note, op_id=op_id)
    with await _obeyed_here(turn_id, command, tool_id=tool_id) as obeying:
        store = partial(_request_call_cancel, turn_id, tool_id, command)
        receipt = await _stored(store, patience=STORE_PATIENCE if obeying else 0.0)
    return await _notify_of(receipt)


async def _cancel_turn(turn_id: UUID, command: CancelCommand) -> CancelReceipt:
    with await _obeyed_here(turn_id, command) as obeying:
        store = partial(_request_turn_cancel, turn_id, replace(command, obeying=obeying))
        receipt = await _stored(store, patience=STORE_PATIENCE if obeying else 0.0)
    return await _notify_of(receipt)


async def _stored(
    store: Callable[[], Awaitable[CancelReceipt]], *, patience: float
) -> CancelReceipt:
    """Store a request, retrying for `patience` seconds, because the audit must contain a cancel that took effect."""
    now = asyncio.get_running_loop().time
    deadline = now() + patience
    while True:
        try:
            return await store()
        except TurnsError:
            raise
        except Exception as failure:
            if now() >= deadline or not await runtime.takes_work():
                raise
            logger.warning("A cancel that runs already was not stored yet: %s", failure)
            await asyncio.sleep(STORE_PAUSE)


async def _obeyed_here(
    turn_id: UUID, command: CancelCommand, *, tool_id: str = ""
) -> AbstractContextManager[frozenset[UUID]]:
    """Cancel a turn or call of this process while the request is being stored, because the database may be slow (C1).

    The user who owns the turn is known in this process, so a cancel by this user needs no query. The context manager
    returns the ids of the cancelled turns.
    """
    live = runtime.find_turn(turn_id) if command.mode == "now" else None
    if live is None:
        return nullcontext(frozenset())
    owner_id = live.turn.user_id
    if command.user.pk != owner_id and not await _may_cancel_any(command.user):
        return nullcontext(frozenset())
    cancellation = commands.cancellation_by(command.user, command, owner_id=owner_id)
    request = PendingCancel(turn_id=turn_id, tool_id=tool_id, cancellation=cancellation)
    return runtime.obeyed(request, for_descendants=None if tool_id else inherited(cancellation))


async def _apply_cancel_word(
    user: User, conversation_id: UUID, text: str, *, source: str, client_id: str | None
) -> Received | None:
    """Cancel the active turn, or else detached sub-agents. Return None if nothing was cancelled, now or just before.

    A repeated message with the same `client_id` has no further effect.
    """
    command = CancelCommand(
        user=user,
        source=CancelSource.VOICE if source == "voice" else CancelSource.TYPED,
        op_id=client_id and operations.of_message(client_id),
        said=" ".join(text.split()),
    )
    target = await _target_of_cancel_word(user, conversation_id, client_id)
    if target is None:
        received = await _end_detached(conversation_id, command)
        return received or await _answer_again(conversation_id, command)
    turn_id, cancelled = target
    if cancelled is None:
        receipt = await _cancel_turn(turn_id, command)
        if receipt.outcome is not OpOutcome.ACCEPTED:
            return await _answer_again(conversation_id, command)
    return Received(
        conversation_id=conversation_id,
        turn_id=turn_id,
        is_new=False,
        cancelled=cancelled is not False,
    )


async def _end_detached(conversation_id: UUID, command: CancelCommand) -> Received | None:
    """Cancel the detached sub-agents of a conversation without an active turn; return None if there are none."""
    receipts = await _request_detached_cancel(conversation_id, command)
    for receipt in receipts:
        await _notify_of(receipt)
    if not receipts:
        return None
    return Received(
        conversation_id=conversation_id,
        turn_id=receipts[0].turn_id,
        is_new=False,
        cancelled=True,
    )


async def _answer_again(conversation_id: UUID, command: CancelCommand) -> Received | None:
    """Return the result of the previous cancel if the conversation was just cancelled; None otherwise."""
    turn_id = await _just_cancelled(conversation_id, command)
    if turn_id is None:
        return None
    return Received(conversation_id=conversation_id, turn_id=turn_id, is_new=False, cancelled=True)


async def _notify_of(receipt: CancelReceipt) -> CancelReceipt:
    """Publish the events of a cancel, and notify the processes of running turns, so that they need not wait for their
    next poll.
    """
    if receipt.outcome is OpOutcome.ACCEPTED:
        checkpoint("after_cancel_stored")
    await notify(receipt.notifications, notify_owner=runtime.notify_owner)
    if not receipt.notifications.has_left_out:
        return receipt
    left_out = await _cancel_left_out(receipt.turn_id)
    await notify(left_out, notify_owner=runtime.notify_owner)
    return receipt


identify = run_in_query_thread(identified)
_may_cancel_any = run_in_query_thread(may_cancel_any)
_continue = run_in_db_thread(queue.continue_turn)
_resume = run_in_db_thread(parking.resume)
_request_turn_cancel = run_in_db_thread(commands.request_turn_cancel)
_cancel_left_out = run_in_db_thread(commands.cancel_left_out)
_request_detached_cancel = run_in_db_thread(commands.request_detached_cancel)
_just_cancelled = run_in_db_thread(commands.just_cancelled)
_request_call_cancel = run_in_db_thread(commands.request_call_cancel)


@run_in_db_thread
def _create_conversation(
    conversation_id: UUID, user: User, title: str, agent: str
) -> ConversationSummary:
    owner_id = reload(user).pk
    answering_agent = find_agent(agent, user_id=owner_id).name
    values = {"owner_id": owner_id, "title": title, "agent": agent}
    try:
        row, is_new = Conversation.objects.get_or_create(pk=conversation_id, defaults=values)
    except IntegrityError:
        reload(user)  # raises if the owner was deleted in the meantime
        raise
    if not is_new:
        row = conversation_for(user, conversation_id)
        answering_agent = row.agent or default_name(user_id=owner_id)
    return ConversationSummary(
        id=row.pk, title=row.title, agent=answering_agent, updated_at=row.updated_at
    )


@run_in_query_thread  # does not wait for locks
def _target_of_cancel_word(
    user: User, conversation_id: UUID, client_id: str | None
) -> tuple[UUID, bool | None] | None:
    """Return the turn that a cancel word refers to. The flag is None for a new word; for a repeated one, it says
    whether the word has cancelled the turn (True) or was queued as its message (False).
    """
    conversation = conversation_for(user, conversation_id)
    if client_id and (earlier := operations.earlier_turn(conversation.pk, client_id)) is not None:
        return earlier
    turn = commands.active_turn(conversation.pk)
    return (turn.pk, None) if turn else None


@run_in_db_thread
def _enqueue(
    user: Asker,
    conversation_id: UUID,
    message: _Message,
    *,
    language: str | None,
) -> queue.Enqueued:
    with override(language):  # the writer sees the error messages
        writer = identified(user)
        _check_message(message)
        return queue.enqueue(
            conversation_id,
            text=sanitize_text(message.text) if message.text.strip() else FILES_ALONE,
            source=message.source,
            client_id=message.client_id,
            writer=writer,
            replaces=message.replaces,
            attachments=message.attachments,
        )


def _check_message(message: _Message) -> None:
    if not message.text.strip() and not message.attachments:
        raise MessageRejected(_("The message is empty."))
    limit = app_settings.MAX_MESSAGE_LENGTH
    if len(message.text) > limit:
        raise MessageRejected(
            _("The message is too long. The limit is %(limit)d characters.") % {"limit": limit}
        )
    if message.client_id is not None and not 0 < len(message.client_id) <= CLIENT_ID_LENGTH:
        raise MessageRejected(_("client_id must have 1 to 64 characters."))
