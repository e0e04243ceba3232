"""What clients may do to conversations and turns: parse nothing, check everything, write once, then wake the owner.

Each service checks the user again, stores in one transaction, publishes, and hands over to the supervisor. None of them
waits for a turn, a tool or a model (invariant 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from django.db import IntegrityError
from django.utils.translation import get_language, override
from django.utils.translation import gettext as _

from governance import CancelSource, checkpoint, is_cancel_intent
from governance.db import run_in_db_thread, run_in_db_thread_plainly, run_in_query_thread
from governance.sanitize import sanitize_line, sanitize_text
from turns.agents.lookup import find_agent
from turns.cancelling import commands
from turns.cancelling.commands import CancelCommand, CancelReceipt
from turns.conf import app_settings
from turns.events import sinks
from turns.events.notifications import notify
from turns.exceptions import MessageRejected
from turns.models import Conversation, Process
from turns.processes.background import shielded
from turns.queueing import continuations, parking, queue
from turns.running import runtime
from turns.running.loop_runtime import Runtime
from turns.selectors import ConversationSummary
from turns.storage import operations
from turns.storage.access import Asker, User, conversation_for, identified, reload
from turns.storage.operations import OpOutcome

CLIENT_ID_LENGTH = 64
FILES_ALONE = " "  # the words of a message that has none: an empty text is one that was pruned


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What became of a message: a turn that was queued (or known), or a cancel word that took effect."""

    conversation_id: UUID
    turn_id: UUID
    is_new: bool = True
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """What a client has sent."""

    text: str
    source: str
    client_id: str | None
    replaces: UUID | None
    attachments: Sequence[UUID]


async def create_conversation(
    *, user: User, title: str = "", agent: str = "", conversation_id: UUID | None = None
) -> ConversationSummary:
    """Begin a conversation with an agent, or with the default one as it is at each message.

    A client may choose the id; asked again with the same one, it gets the same conversation as it is.

    Raises:
        AgentUnavailable: there is none of this name, or it is switched off.
        ConversationNotFound: the id is that of a conversation of somebody else, or of a deleted one.
        NotAllowed: the user is gone or deactivated.
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
    """Queue a turn for a message, or cancel if it is a cancel word and a turn is active (C6).

    With `replaces`, the message takes the place of that turn's. That one and all behind it leave the history, and stay to be seen.
    Nothing may run then. `attachments` are files that the user has attached: each in one conversation only, and there as often
    as wanted. If `user` is a function, it is called where the message is stored: that takes no crossing of its own.

    Raises:
        AttachmentNotFound, AttachmentRejected,
        ConversationNotFound, MessageRejected, TooManyMessages, QueueIsFull, AgentUnavailable, NotAllowed
        CannotReplace, AlreadyReplaced, ConversationBusy: what `replaces` names cannot be replaced.
    """
    here = await runtime.ensure_started()
    if is_cancel_intent(text, also=app_settings.CANCEL_WORDS):
        user = await identify(user)
        applied = await _apply_cancel_word(
            user, conversation_id, text, source=source, client_id=client_id
        )
        if applied is not None:
            return applied
    message = _Message(
        text=text, source=source, client_id=client_id, replaces=replaces, attachments=attachments
    )
    enqueued = await _enqueue_here(here, user, conversation_id, message)
    return Received(
        conversation_id=conversation_id, turn_id=enqueued.turn.pk, is_new=enqueued.is_new
    )


async def _enqueue_here(
    here: Runtime, user: Asker, conversation_id: UUID, message: _Message
) -> queue.Enqueued:
    """Queue the message's turn and publish it. If this process has a free slot, it may begin the turn at once."""
    reserved, claimed = here.reserve(conversation_id), None
    try:
        process = here.process if reserved is not None else None
        enqueued = await _enqueue(
            user, conversation_id, message, process=process, language=get_language()
        )
        checkpoint("after_enqueue")
        if (claimed := enqueued.claimed) is not None:
            checkpoint("after_claim")
        await sinks.publish(conversation_id, enqueued.events)
    finally:
        if reserved is not None and not reserved.done():
            reserved.set_result(claimed)
    return enqueued


@shielded
async def continue_turn(*, turn_id: UUID, user: User) -> Received:
    """Let the agent go on after a turn that was interrupted, in a new turn. Asked again, it is the same one (H4).

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
    """Let a parked conversation go on; False if it was not parked (H4). Raise `ConversationNotFound`, `NotAllowed`."""
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
    """Cancel a turn and what is queued behind it: stored when this returns, true within a second (C1, C2, C5)."""
    command = CancelCommand(user=user, source=source, note=note, mode=mode, op_id=op_id)
    return await _notify_of(await _request_turn_cancel(turn_id, command))


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
    """Cancel one call; the others and the turn go on (C3)."""
    command = CancelCommand(user=user, source=source, note=note, op_id=op_id)
    return await _notify_of(await _request_call_cancel(turn_id, tool_id, command))


async def _apply_cancel_word(
    user: User, conversation_id: UUID, text: str, *, source: str, client_id: str | None
) -> Received | None:
    """Cancel what is active; None if nothing is, or was a moment ago. A message that was sent again has no second effect."""
    command = CancelCommand(
        user=user,
        source=CancelSource.VOICE if source == "voice" else CancelSource.TYPED,
        op_id=client_id and operations.of_message(client_id),
        said=" ".join(text.split()),
    )
    meant = await _turn_meant(user, conversation_id, client_id)
    if meant is None:
        ended = await _end_detached(conversation_id, command)
        return ended or await _answer_again(conversation_id, command)
    turn_id, cancelled = meant
    if cancelled is None:
        receipt = await _notify_of(await _request_turn_cancel(turn_id, command))
        if receipt.outcome is not OpOutcome.ACCEPTED:
            return await _answer_again(conversation_id, command)
    return Received(
        conversation_id=conversation_id,
        turn_id=turn_id,
        is_new=False,
        cancelled=cancelled is not False,
    )


async def _end_detached(conversation_id: UUID, command: CancelCommand) -> Received | None:
    """Nothing goes on here but sub-agents that nobody waits for: the word means them; None if there are none."""
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
    """Nothing goes on, because it was cancelled a moment ago: the same answer again; None if it was not."""
    turn_id = await _just_cancelled(conversation_id, command)
    if turn_id is None:
        return None
    return Received(conversation_id=conversation_id, turn_id=turn_id, is_new=False, cancelled=True)


async def _notify_of(receipt: CancelReceipt) -> CancelReceipt:
    """Tell of what was ended at once, and let the owner obey the rest without waiting for its poll."""
    if receipt.outcome is OpOutcome.ACCEPTED:
        checkpoint("after_cancel_stored")
    await notify(receipt.notifications, notify_owner=runtime.notify_owner)
    if not receipt.notifications.has_left_out:
        return receipt
    left_out = await _cancel_left_out(receipt.turn_id)
    await notify(left_out, notify_owner=runtime.notify_owner)
    return replace(receipt, descendants=max(receipt.descendants, left_out.cancelled))


identify = run_in_query_thread(identified)
_continue = run_in_db_thread(continuations.continue_turn)
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
    owner_id, answering = reload(user).pk, find_agent(agent).name
    values = {"owner_id": owner_id, "title": title, "agent": agent}
    try:
        row, is_new = Conversation.objects.get_or_create(pk=conversation_id, defaults=values)
    except IntegrityError:
        reload(user)  # raises where the owner was deleted meanwhile
        raise
    if not is_new:
        row = conversation_for(user, conversation_id)
        answering = row.agent or find_agent().name
    return ConversationSummary(
        id=row.pk, title=row.title, agent=answering, updated_at=row.updated_at
    )


@run_in_db_thread
def _turn_meant(
    user: User, conversation_id: UUID, client_id: str | None
) -> tuple[UUID, bool | None] | None:
    """The turn that a cancel word is about, and whether it was cancelled by it before; None = not decided yet."""
    conversation = conversation_for(user, conversation_id)
    if client_id and (earlier := operations.earlier_turn(conversation.pk, client_id)) is not None:
        return earlier
    turn = commands.active_turn(conversation.pk)
    return (turn.pk, None) if turn else None


@run_in_db_thread_plainly
def _enqueue(
    user: Asker,
    conversation_id: UUID,
    message: _Message,
    *,
    process: Process | None,
    language: str | None,
) -> queue.Enqueued:
    with override(language):  # for an error, which the writer reads
        writer = identified(user)
        _check_message(message)
        return queue.enqueue(
            conversation_id,
            text=sanitize_text(message.text) if message.text.strip() else FILES_ALONE,
            source=message.source,
            client_id=message.client_id,
            writer=writer,
            process=process,
            replaces=message.replaces,
            attachments=message.attachments,
        )


def _check_message(message: _Message) -> None:
    if not message.text.strip() and not message.attachments:
        raise MessageRejected(_("The message is empty."))
    limit = app_settings.MAX_MESSAGE_LENGTH
    if len(message.text) > limit:
        raise MessageRejected(
            _("The message is too long: at most %(limit)d characters.") % {"limit": limit}
        )
    if message.client_id is not None and not 0 < len(message.client_id) <= CLIENT_ID_LENGTH:
        raise MessageRejected(_("client_id must have 1 to 64 characters."))
