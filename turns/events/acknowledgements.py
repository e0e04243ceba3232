"""Acknowledgements: a person who sends a cancel word receives one answer, after the cancel has taken effect (C6, C8).

An acknowledgement is an event that the conversation shows. It is not a message, so no chat model reads it. The answer
to a typed word is fixed. The answer to a spoken word comes from the chat model if it arrives in time.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.utils.translation import gettext_noop as _

from governance import CancelSource, has_cancel_word, selectors
from governance.db import atomic, run_in_db_thread
from governance.db_clock import database_now, now_minus
from governance.sanitize import sanitize_text
from turns.agents.lookup import find_agent
from turns.chat_models.catalog import get_chat_model
from turns.conf import app_settings
from turns.core.chat_model import ChatModel, ChatRequest, Reply, StopReason
from turns.core.events import CancelAcknowledged
from turns.core.messages import Message, TextBlock
from turns.core.texts import HAS_ENDED
from turns.core.turns import BY_PEOPLE, TurnStatus
from turns.core.wire import AnsweredCancelWord
from turns.events import log, sinks
from turns.models import Acknowledgement, CancelRequest, Turn
from turns.processes import background

logger = logging.getLogger(__name__)

LEFT_AFTER = timedelta(seconds=10)  # after this time, any process sends an unsent answer
AT_ONCE = 100
TEXT_LENGTH = 300
_MAY_GO_ON = _("Okay. I stopped waiting for it, but it may still be running.")
_CANCELLED_BUT = _("Cancelled. May still be running: %(tools)s.")
_CANCELLED_BEHIND = _("Cancelled in the background: %(agents)s.")
_OKAY = _("Okay, it has ended.")
_CANCELLED, _ENDED = _("Cancelled."), _("It has ended.")
STORED = (
    _MAY_GO_ON,
    _CANCELLED_BUT,
    _CANCELLED_BEHIND,
    _OKAY,
    _CANCELLED,
    _ENDED,
)  # rows store them in English


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """An acknowledgement that can be sent now. `is_plain` is true if the work was cancelled and is known to
    have ended.
    """

    text: str
    said: str
    agent: str
    user_id: Any
    is_spoken: bool
    is_plain: bool


def note(request: CancelRequest, turn: Turn, *, words: str, source: CancelSource) -> int:
    """Record that a cancel word was sent, with the turn under which its answer is shown; return the answer's id.

    A second word for the same request changes nothing, because each request has one answer.
    """
    row, _is_new = Acknowledgement.objects.get_or_create(
        request=request,
        defaults={"turn": turn, "said": sanitize_text(words, limit=200), "source": source.value},
    )
    return int(row.pk)


def due_after(turn: Turn) -> list[int]:
    """Return the ids of answers that the end of a turn may have made due, including those for other detached turns."""
    condition = Q(request__turn=turn)
    if turn.is_detached and turn.parent is not None:
        place = turn.parent.conversation_id
        condition |= Q(request__turn__is_detached=True, turn__conversation=place)
    rows = Acknowledgement.objects.filter(condition, at=None)
    return list(rows.values_list("pk", flat=True))


def overdue() -> list[int]:
    """Return the ids of answers that are overdue because the process responsible for them has died."""
    rows = Acknowledgement.objects.filter(at=None, request__settled_at__lt=now_minus(LEFT_AFTER))
    return list(rows.order_by().values_list("pk", flat=True)[:AT_ONCE])


def begin(answers: Iterable[int]) -> None:
    """Send the answers with these ids in the background, unless they are not due yet."""
    for pk in answers:
        background.spawn(_give(pk), name=f"acknowledgement {pk}")


def of_turns(turn_ids: Iterable[UUID]) -> dict[UUID, list[AnsweredCancelWord]]:
    """Return the answers sent so far, by the turn under which they are shown."""
    answers: dict[UUID, list[AnsweredCancelWord]] = {}
    rows = Acknowledgement.objects.filter(turn__in=list(turn_ids), at__isnull=False)
    for row in rows.order_by("pk"):
        answers.setdefault(row.turn_id, []).append(_payload(row))
    return answers


async def _give(pk: int) -> None:
    due = await _look(pk)
    if due is None:
        return
    text = due.text
    if due.is_spoken and due.is_plain:
        text = await _phrase_by_agent(due) or text
    batch = await _store(pk, text)
    if batch is not None:
        await sinks.publish(*batch)


async def _phrase_by_agent(due: _Due) -> str:
    """Return the answer in the agent's words; empty if there is none, or if a microphone could pick up a cancel word
    from it.
    """
    try:
        text = await acknowledge(due.said, agent=due.agent, user_id=due.user_id)
    except Exception:
        logger.warning("A chat model gave no acknowledgement", exc_info=True)
        return ""
    is_risky = has_cancel_word(text, also=app_settings.CANCEL_WORDS)
    return "" if is_risky or len(text) > TEXT_LENGTH else text


@run_in_db_thread
def _look(pk: int) -> _Due | None:
    """Return the answer if it is due, that is, if its request and those made with it have taken effect."""
    rows = Acknowledgement.objects.select_related("request__turn__parent", "turn__conversation")
    row = rows.filter(pk=pk, at=None, request__settled_at__isnull=False).first()
    if row is None or _has_others_open(row):
        return None
    is_spoken = row.source == CancelSource.VOICE
    names = selectors.may_still_run(str(row.request.turn_id))
    was_cancelled = row.request.outcome == TurnStatus.CANCELLED
    agents = _agents_ended(row) if was_cancelled else []
    return _Due(
        text=_fixed(is_spoken=is_spoken, was_cancelled=was_cancelled, tools=names, agents=agents),
        said=row.said,
        agent=row.turn.agent,
        user_id=row.turn.conversation.owner_id,
        is_spoken=is_spoken,
        is_plain=was_cancelled and not names,
    )


def _has_others_open(row: Acknowledgement) -> bool:
    """Return whether other detached turns affected by the same word are still active."""
    target = row.request.turn
    if target.conversation_id == row.turn.conversation_id:
        return False
    others = CancelRequest.objects.filter(
        turn__parent__conversation=row.turn.conversation_id,
        turn__is_detached=True,
        tool_id="",
        settled_at=None,
        reason__in=BY_PEOPLE,
    )
    return others.exists()


def _agents_ended(row: Acknowledgement) -> list[str]:
    """Return the agents of the detached turns that the word ended; empty if it referred to the active turn."""
    target = row.request.turn
    if target.conversation_id == row.turn.conversation_id:
        return []
    ended = Turn.objects.filter(
        parent__conversation=row.turn.conversation_id,
        is_detached=True,
        status=TurnStatus.CANCELLED,
        cancel_requests__requested_at__gte=row.request.requested_at,
        cancel_requests__tool_id="",
        cancel_requests__reason__in=BY_PEOPLE,
    )
    return list(ended.order_by("queued_at", "pk").values_list("agent", flat=True))


def _fixed(*, is_spoken: bool, was_cancelled: bool, tools: list[str], agents: list[str]) -> str:
    """Return the fixed text of an answer.

    The answer to a spoken word contains no cancel word, because a microphone may pick it up.
    """
    if tools and is_spoken:
        return _MAY_GO_ON
    if tools:
        return _CANCELLED_BUT % {"tools": ", ".join(tools)}
    if is_spoken:
        return _OKAY
    if agents:
        return _CANCELLED_BEHIND % {"agents": ", ".join(agents)}
    return _CANCELLED if was_cancelled else _ENDED


@run_in_db_thread
def _store(pk: int, text: str) -> log.Batch | None:
    """Store the answer, unless another process has already stored it."""
    with atomic():
        row = Acknowledgement.objects.select_related("turn").get(pk=pk)
        conversation = log.locked(row.turn.conversation_id)
        at = database_now()
        text = sanitize_text(text, limit=TEXT_LENGTH)
        if not Acknowledgement.objects.filter(pk=pk, at=None).update(text=text, at=at):
            return None
        row.text, row.at = text, at
        event = CancelAcknowledged(**_payload(row))
        return conversation.pk, log.append(conversation, row.turn_id, event)


def _payload(row: Acknowledgement) -> AnsweredCancelWord:
    return {"text": row.text, "said": row.said, "source": row.source}


TIME_LIMIT = 2.0  # seconds
MAX_TOKENS = 40
MAX_LENGTH = 240  # characters; a sentence of forty tokens is shorter

_INSTRUCTIONS = (
    "A person has just asked by voice that you end what you were doing, and it has ended. Say so in one sentence of at most ten"
    " words, in the language of what was said. It is read aloud while a microphone listens: do not repeat what was said, and"
    " use no word for stopping or cancelling. Promise nothing, ask nothing, call no tool."
)


async def acknowledge(words: str, *, agent: str, user_id: Any) -> str:
    """Return the agent's answer to a spoken cancel word that has taken effect; empty if the answer is late, too long or
    incomplete.

    Raises: AgentUnavailable, ChatModelError: no model can answer.
    """
    speaker = await run_in_db_thread(find_agent)(agent, user_id=user_id)
    chat_model = get_chat_model(speaker.chat_model or app_settings.CHAT_MODEL)
    message = Message(
        role="user", content=(TextBlock(text=f"{HAS_ENDED} The person said: {words}"),)
    )
    request = ChatRequest(
        instructions=_INSTRUCTIONS, messages=(message,), max_tokens=MAX_TOKENS, may_think=False
    )
    saying = asyncio.create_task(_say(chat_model, request), name="acknowledgement of a voice")
    try:
        done, _late = await asyncio.wait({saying}, timeout=TIME_LIMIT)
    finally:
        saying.cancel()
    if not done:
        saying.add_done_callback(_ignore)
        return ""
    return saying.result()


async def _say(chat_model: ChatModel, request: ChatRequest) -> str:
    reply = Reply()
    stream = chat_model.stream(request)
    try:
        async for delta in stream:
            reply.take(delta)
            if len(reply.text) > MAX_LENGTH:
                return ""
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
    is_whole = reply.stop_reason is StopReason.END and not reply.has_calls
    return " ".join(reply.text.split()) if is_whole else ""


def _ignore(task: "asyncio.Task[str]") -> None:
    if not task.cancelled():
        task.exception()
