"""Events on their way from whoever runs a turn to whoever looks at it, through Channels' layer.

Nothing that matters exists only here: layers lose messages without a word, so a message is a hint that sockets check
against the log. A layer that fails is logged; it never fails a turn (invariant 2).
"""

import asyncio
import json
import logging
import time
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest

from webchat.conf import app_settings
from webchat.identity import fingerprint

logger = logging.getLogger(__name__)

QUIET = 1.0  # seconds; sockets read the log at their next heartbeat


class ChannelLayerSink:
    """Tells all sockets of a conversation what happened: small events whole, large ones by number.

    After a timeout it keeps quiet for a moment: a broker that hangs must not hold up a turn at every event.
    """

    def __init__(self) -> None:
        self._quiet_until = 0.0
        self._complain_from = 0.0

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """Send one event to the conversation's group."""
        message = message_for(event)
        layer = get_channel_layer()
        if message is None or layer is None or time.monotonic() < self._quiet_until:
            return
        try:
            async with asyncio.timeout(app_settings.LAYER_TIMEOUT):
                await layer.group_send(conversation_group(conversation_id), message)
        except Exception as failure:
            if time.monotonic() >= self._complain_from:  # streamed text would fill the log
                self._complain_from = time.monotonic() + QUIET
                logger.exception("An event was not published")
            if isinstance(failure, TimeoutError):
                self._quiet_until = time.monotonic() + QUIET


def conversation_group(conversation_id: UUID) -> str:
    """Return the name of the group of all sockets that show a conversation."""
    return f"conversation.{conversation_id.hex}"


def user_group(user_id: Any) -> str:
    """Return the name of the group of all sockets of a user."""
    return f"user.{user_id}"


def message_for(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return what goes through the layer for an event; None for one that is too large and has no number."""
    if (
        len(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"))
        <= app_settings.MAX_INLINE_EVENT_BYTES
    ):
        return {"type": "conversation.event", "event": event}
    if "seq" in event:
        return {"type": "conversation.event", "seq": event["seq"]}
    return None  # streamed text: the client sees the gap in `offset` and asks for all of it


async def join(channel: str, *groups: str) -> None:
    """Add a socket to groups, or do so again: memberships expire, and a broker may have forgotten them."""
    layer = get_channel_layer()
    if layer is not None:
        for group in groups:
            await _bounded(layer.group_add(group, channel), "A socket did not join its group")


async def leave(channel: str, *groups: str) -> None:
    """Take a socket out of groups."""
    layer = get_channel_layer()
    if layer is not None:
        for group in groups:
            await _bounded(layer.group_discard(group, channel), "A socket did not leave its group")


def tell_signed_out(
    sender: object, *, request: HttpRequest | None, user: AbstractBaseUser | None, **_: Any
) -> None:
    """Let go the sockets of a session that ends (receiver of Django's `user_logged_out`)."""
    layer = get_channel_layer()
    if request is None or user is None or layer is None:
        return
    message = {"type": "user.signed_out", "session": fingerprint(request.session.session_key)}
    async_to_sync(_bounded_send)(user_group(user.pk), message)


async def _bounded_send(group: str, message: dict[str, Any]) -> None:
    layer = get_channel_layer()
    if layer is not None:
        await _bounded(layer.group_send(group, message), "Sockets were not told of a sign-out")


async def _bounded(work: Coroutine[Any, Any, Any], complaint: str) -> None:
    try:
        async with asyncio.timeout(app_settings.LAYER_TIMEOUT):
            await work
    except Exception:
        logger.exception(complaint)
