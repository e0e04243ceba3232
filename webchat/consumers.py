"""The WebSocket of one conversation: parses, calls one service, answers. It never waits for a turn (invariant 1).

Channels handles one message of a socket at a time. A handler that waits would hold back the next `cancel`.
What is sent goes through the send queue, whose task is the only one that waits for the client.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any
from uuid import UUID

from channels.consumer import get_handler_name
from channels.generic.websocket import AsyncWebsocketConsumer
from django.utils import translation
from django.utils.translation import gettext as _

from turns import selectors
from turns.exceptions import ConversationNotFound, NotAllowed, TurnsError
from webchat import broadcast, open_sockets, operations
from webchat.conf import app_settings
from webchat.exceptions import ProtocolError, SignedOut
from webchat.feed import Feed, encode_frame
from webchat.identity import current_user, session_fingerprint
from webchat.local_feeds import local_feeds
from webchat.log_poller import log_poller
from webchat.overview_tracker import EncodedOverview
from webchat.protocol.client_frames import ClientFrame, Hello, parse
from webchat.protocol.constants import PROTOCOL_VERSION, CloseCode
from webchat.protocol.server_frames import Frame
from webchat.rate_limits import TOO_MANY_FRAMES, TOO_MANY_SOCKETS, may_open_socket, may_send_frame
from webchat.send_queue import SEND_NOW, TRY_AGAIN, SendQueue
from webchat.sliding_window import RateLimit
from webchat.subscription import Subscription
from webchat.translation import language_of

logger = logging.getLogger(__name__)

INTERNAL_ERROR = 1011
NO_LAYER = "none"  # no project calls a channel layer so


class ChatConsumer(AsyncWebsocketConsumer):
    """One socket. It is accepted before it is refused, so that browsers see the close code."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the socket; whatever ends it, leave no task and no group membership behind."""
        extension = scope.get("extensions", {}).get(SEND_NOW, {})
        self.send_queue = SendQueue(
            send=self._send_text, close=self.close, send_now=extension.get("send")
        )
        self.tasks: list[asyncio.Task[None]] = []
        self.reading: asyncio.Task[None] | None = None
        self.groups_joined: tuple[str, ...] = ()
        self.has_ended = asyncio.Event()
        self.user_id: Any = None
        self.client_close_code: int | None = None
        self.language = await asyncio.to_thread(language_of, scope)
        translation.activate(self.language)  # for this task and those that it starts
        self.has_layer = False
        self.lifetime = asyncio.timeout(None)
        try:
            self.has_layer = await broadcast.is_layer_available()
            if not self.has_layer:  # of other processes, the log has everything but streamed text
                self.channel_layer_alias = NO_LAYER  # type: ignore[misc]  # Channels reads it of the instance
            async with self.lifetime:
                await super().__call__(scope, receive, send)
        except TimeoutError:
            if not self.lifetime.expired():
                raise
        finally:
            open_sockets.remove(self)
            self._close_feed()
            await log_poller.unsubscribe(self)
            await self._cancel_tasks()
            await self._leave()

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Hand a message to its handler at once.

        Channels would look after the database connections first, in the thread in which everybody's statements queue. The
        doors do that with each crossing, and a piece of text crosses none: it shall not wait for a database.
        """
        await getattr(self, get_handler_name(message))(message)

    async def connect(self) -> None:
        """Accept, then find out who it is and whether the conversation is theirs."""
        await self.accept()
        self.greeted = asyncio.Event()
        self.frames = RateLimit(app_settings.MAX_FRAMES_PER_MINUTE)
        self.bad_frames = RateLimit(app_settings.MAX_BAD_FRAMES)
        if open_sockets.are_closing():
            self.send_queue.close(CloseCode.RESTARTING)
        else:
            open_sockets.add(self)
            await self._guarded(self._admit())
        if not self.groups_joined:
            self.send_queue.close(INTERNAL_ERROR)  # unless it was refused for a reason of its own
        self.tasks.append(
            asyncio.create_task(self._run_send_queue(), name="send queue of a socket")
        )

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Answer one frame of the client."""
        if self.send_queue.is_closing:
            return
        if not self.frames.allow():
            self._refuse_flood()
            return
        try:
            frame = parse(text_data or bytes_data or "", max_bytes=app_settings.MAX_FRAME_BYTES)
        except ProtocolError as error:
            self._refuse(error)
            return
        if self.groups_joined and not may_send_frame(self.user_id, frame):
            self._refuse_flood()
        else:
            await self._guarded(self._answer(frame), about=frame)

    async def disconnect(self, code: int | None) -> None:
        """Remember with which code the client has left."""
        self.client_close_code = code

    async def conversation_event(self, message: dict[str, Any]) -> None:
        """Pass on an event that another process has published; those of this one come directly."""
        if not self.send_queue.is_closing and message.get("origin") != broadcast.origin():
            await self._guarded(self.subscription.feed.receive(message))

    async def user_signed_out(self, message: dict[str, Any]) -> None:
        """Close if it was this socket's session that ended."""
        if message["session"] == session_fingerprint(self.scope):
            self.send_queue.close(CloseCode.SIGNED_OUT)

    async def user_changed(self, message: dict[str, Any]) -> None:
        """Close if the user may not be here any more."""
        if not self.send_queue.is_closing:
            await self._guarded(self.subscription.check_rights())

    async def catch_up_to(self, last_seq: int) -> None:
        """Read on in the log if the channel layer has lost something."""
        feed = self.subscription.feed
        if not self.send_queue.is_closing and last_seq > (feed.sent or 0):
            with translation.override(self.language):
                await self._guarded(feed.catch_up())

    def update_overview(self, overview: EncodedOverview) -> None:
        """Tell the client how things stand elsewhere, where that is new to it and it reads at all."""
        with translation.override(self.language):
            self.subscription.update_overview(overview)

    async def close_for_restart(self) -> None:
        """Send what the log has, and let the client come back to another process, or to this one's successor."""
        if self.groups_joined:
            await self._guarded(self.subscription.feed.catch_up())
        self.send_queue.close(CloseCode.RESTARTING)

    async def _admit(self) -> None:
        user = await current_user(self.scope)
        if not may_open_socket(user.pk):
            self._put(operations.refusal("too_many_sockets", TOO_MANY_SOCKETS))
            self.send_queue.close(CloseCode.TOO_MANY)
            return
        self.user_id = user.pk
        self.conversation_id = operations.uuid_of(
            self.scope["url_route"]["kwargs"]["conversation_id"]
        ) or UUID(int=0)
        await selectors.get_conversation(conversation_id=self.conversation_id, user=user)
        self.subscription = self._make_subscription(user)
        self.groups_joined = (
            broadcast.conversation_group(self.conversation_id),
            broadcast.user_group(user.pk),
        )
        # Joined before the log is read: what happens in between waits in the channel until this handler is done.
        await self._join()
        self.tasks.append(
            asyncio.create_task(
                self._send_heartbeats(), name=f"heartbeat of {self.conversation_id}"
            )
        )

    def _make_subscription(self, user: Any) -> Subscription:
        feed = Feed(
            conversation_id=self.conversation_id,
            language=self.language,
            send_queue=self.send_queue,
            on_waiting=self._read_inbox,
        )
        return Subscription(self.scope, feed=feed, user_id=user.pk, send_queue=self.send_queue)

    async def _answer(self, frame: ClientFrame) -> None:
        if self.greeted.is_set():
            await self.subscription.answer(frame)
        elif isinstance(frame, Hello) and frame.protocol == PROTOCOL_VERSION:
            local_feeds.add(self.subscription.feed)  # before the log is read: the rest waits
            await self.subscription.start(after=frame.after, html=frame.html)
            self.greeted.set()
            log_poller.subscribe(self)
            await self.subscription.feed.catch_up()
        else:
            sentence = _("The first frame must be “hello” with protocol 1.")
            self._put(operations.refusal("bad_hello", sentence))
            self.send_queue.close(CloseCode.BAD_FIRST_FRAME)

    async def _send_heartbeats(self) -> None:
        try:
            async with asyncio.timeout(app_settings.HELLO_TIMEOUT):
                await self.greeted.wait()
        except TimeoutError:
            self.send_queue.close(CloseCode.BAD_FIRST_FRAME)
        while not self.send_queue.is_closing:
            await asyncio.sleep(app_settings.HEARTBEAT_INTERVAL)
            await self._join()
            await self._guarded(self.subscription.send_heartbeat())
            if not self.has_layer and await broadcast.is_layer_available():
                self.send_queue.close(TRY_AGAIN)  # a new socket can hear it

    def _close_feed(self) -> None:
        if self.groups_joined:
            local_feeds.remove(self.subscription.feed)
            self.subscription.feed.close()

    def _read_inbox(self) -> None:
        self.reading = asyncio.create_task(self._read(), name=f"inbox of {self.conversation_id}")

    async def _read(self) -> None:
        await self._guarded(self.subscription.feed.read_inbox())

    async def _on_room(self) -> None:
        await self._guarded(self.subscription.send_postponed())

    async def _guarded(self, work: Awaitable[None], *, about: ClientFrame | None = None) -> None:
        """Do it; if that fails, say so, with the id of the frame that it was about, and go on."""
        try:
            await work
        except (SignedOut, NotAllowed):
            self.send_queue.close(CloseCode.SIGNED_OUT)
        except ConversationNotFound:
            await self._guarded(self._close_without_conversation())
        except TurnsError as error:
            self._put(operations.refusal(error.code, error.sentence, about=about))
        except Exception:  # the edge: the client gets a sentence, the log gets the rest
            facts = {"path": self.scope.get("path", ""), "user_id": self.user_id}
            logger.exception("A frame could not be handled", extra=facts)
            self._put(operations.server_error(about))
            if isinstance(about, Hello) and not self.greeted.is_set():
                self.send_queue.close(INTERNAL_ERROR)  # the client comes back, with another “hello”

    async def _close_without_conversation(self) -> None:
        # Conversations go with their owner, who was there perhaps when the same work asked for the user.
        await current_user(self.scope)
        self.send_queue.close(CloseCode.NO_SUCH_CONVERSATION)

    def _refuse(self, error: ProtocolError) -> None:
        self._put(operations.refusal(error.code, error.sentence))
        if not self.greeted.is_set():
            self.send_queue.close(CloseCode.BAD_FIRST_FRAME)
        elif not self.bad_frames.allow():
            self.send_queue.close(CloseCode.TOO_MANY)

    def _refuse_flood(self) -> None:
        self._put(operations.refusal("too_many_frames", TOO_MANY_FRAMES))
        self.send_queue.close(CloseCode.TOO_MANY)

    async def _run_send_queue(self) -> None:
        try:
            await self.send_queue.run(self._on_room)
        except TimeoutError:  # the server itself waits for the client, and does not end the socket
            if not self.has_ended.is_set():
                self.lifetime.reschedule(asyncio.get_running_loop().time())

    def _put(self, frame: Frame) -> None:
        self.send_queue.put(encode_frame(frame))

    async def _send_text(self, text: str) -> None:
        await self.base_send({"type": "websocket.send", "text": text, "bytes": None})

    async def _join(self) -> None:
        if self.has_layer:
            await broadcast.join(self.channel_name, *self.groups_joined)

    async def _leave(self) -> None:
        if not self.groups_joined:
            return  # the client was not let in
        await self.subscription.end(comes_back=self.client_close_code == CloseCode.COMING_BACK)
        if self.has_layer:
            await broadcast.leave(self.channel_name, *self.groups_joined)

    async def _cancel_tasks(self) -> None:
        tasks = [*self.tasks, *([self.reading] if self.reading else [])]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                try:
                    await task
                except Exception:
                    logger.exception("A task of a socket failed")
