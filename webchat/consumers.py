"""The WebSocket of a conversation. Start reading here.

The consumer parses each frame, calls one service for it, and sends a response. It never waits for a turn (invariant 1).

Channels handles one message of a socket at a time, so a handler that waits for the database would delay a cancel behind
it. The consumer therefore reads ahead. It handles frames in order, but performs a cancel out of order if the frames
before it are stuck. All frames to the client pass through the send queue, whose task is the only one that waits for the
client.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from channels.consumer import get_handler_name
from channels.generic.websocket import AsyncWebsocketConsumer
from django.utils import translation
from django.utils.translation import gettext as _

from governance import CancelSource
from governance.threads import run_in_thread
from turns import selectors
from turns.exceptions import ConversationNotFound, NotAllowed, TurnsError
from turns.presence.viewers import Presence
from turns.processes.background import shielded
from turns.running import runtime
from turns.selectors.conversation_status import Overview, StreamingText
from webchat import __version__, broadcast, open_sockets, operations
from webchat.conf import app_settings
from webchat.exceptions import DATABASE_FAILURES, ProtocolError, SignedOut
from webchat.feed import Feed, encode, encode_frame, local_feeds
from webchat.identity import current_user, session_fingerprint, user_of
from webchat.log_poller import OverviewTracker, log_poller
from webchat.markdown import with_html
from webchat.protocol.client_frames import Ack, ClientFrame, Hello, Message, Ping, Resync, parse
from webchat.protocol.operation import Operation, Requester
from webchat.protocol.server_frames import (
    PROTOCOL_VERSION,
    CloseCode,
    Frame,
    Heartbeat,
    Welcome,
)
from webchat.rate_limits import (
    TOO_MANY_FRAMES,
    TOO_MANY_SOCKETS,
    RateLimit,
    may_open_socket,
    may_send_frame,
)
from webchat.send_queue import TRY_AGAIN, SendQueue
from webchat.translation import for_reader, language_of

logger = logging.getLogger(__name__)

INTERNAL_ERROR = 1011
MAX_FRAME_BYTES = 65_536  # limit of the protocol
NO_LAYER = "none"  # alias of a channel layer that does not exist
HEARTBEAT_ATTEMPTS = 3
VIEWER_TIMEOUT = 1.0  # seconds
CANCELLER_TIMEOUT = 0.5  # seconds
CANCEL_PATIENCE = 0.5  # seconds that a cancel waits for earlier frames
FRAMES_AHEAD = 32  # frames that may wait behind the current one

_current_user = shielded(current_user)  # the query may hang, but its caller must not


class Subscription:
    """A socket's subscription to a conversation. The consumer handles the exceptions of its methods."""

    def __init__(self, scope: Any, *, feed: Feed, user: Any, send_queue: SendQueue) -> None:
        self._scope = scope
        self._conversation_id = feed.conversation_id
        self._send_queue = send_queue
        self._overview = OverviewTracker(user_id=user.pk, conversation_id=feed.conversation_id)
        self._postponed_texts: set[UUID] = set()
        self._joining: asyncio.Task[None] | None = None
        self._presence: Presence | None = None
        self._user = user  # as it was last read from the database
        self.feed = feed

    async def start(self, hello: Hello) -> None:
        """Send the welcome, then the missed events, or a snapshot if the log no longer has all of them.

        If the client requested `html`, also send the text so far of running turns, with its finished blocks.
        """
        after = hello.after
        ack_bytes = self._send_queue.expect_acks() if hello.acks else None
        requester = await self._requester()
        self._viewers = (await runtime.ensure_started()).presence
        await self._register_viewer(requester.user.pk)
        last_seq = await selectors.last_seq(conversation_id=self._conversation_id)
        user = requester.user.get_username()
        self._put(
            Welcome(server_version=__version__, last_seq=last_seq, user=user, ack_bytes=ack_bytes)
        )
        if after is not None and after <= last_seq and await self._reaches_back(after):
            self.feed.start_after(after)
        else:
            self.feed.start_after(await self._send_snapshot(requester))
        if hello.html:
            self.feed.ask_for_html()
            await self._send_live_text(requester)

    async def answer(self, frame: ClientFrame) -> None:
        """Respond to a frame that follows `hello`."""
        if isinstance(frame, Ack):
            self._send_queue.acknowledge(frame.received)
            return
        if isinstance(frame, Message):  # its user is looked up when the message is stored
            requester = self._requester_of(partial(user_of, self._scope))
        elif isinstance(frame, Operation) and frame.is_cancel:
            requester = await self._canceller()
        else:
            requester = await self._requester()
        match frame:
            case Hello():
                self._put(
                    operations.refusal(
                        "already_greeted", _("Send “hello” only once, as the first frame.")
                    )
                )
            case Ping():
                await self.send_heartbeat(requester)
            case Message():
                answer = await operations.submit_message(frame, requester=requester)
                if answer is not None:
                    self._put(answer)
            case Resync():
                await self._resync(operations.uuid_of(frame.turn_id), requester)
            case _:
                self._put(await operations.run_operation(frame, requester=requester))

    async def send_heartbeat(self, requester: Requester | None = None) -> None:
        """Send a heartbeat with the number of the last event and the ids of the active turns."""
        user = (requester or await self._requester()).user
        for _attempt in range(HEARTBEAT_ATTEMPTS):
            seq = self.feed.sent or 0
            last_seq, active = await selectors.pulse(
                conversation_id=self._conversation_id, user=user
            )
            if last_seq == seq:
                break
            await self.feed.catch_up()
        self._put(Heartbeat(last_seq=seq, active=active))

    def update_overview(self, overview: Overview) -> None:
        """Send the overview of other conversations if it has changed and the send queue has room."""
        if self._send_queue.has_room and (frame := self._overview.changes(overview)) is not None:
            self._put(frame)

    async def send_postponed(self) -> None:
        """Send the events and texts for which the send queue had no room."""
        await self.feed.catch_up()
        postponed, self._postponed_texts = self._postponed_texts, set()
        for turn_id in postponed:
            await self._resync(turn_id, await self._requester())

    async def check_rights(self) -> None:
        """Raise an exception if the user is signed out or may no longer see the conversation."""
        requester = await self._requester()
        await selectors.get_conversation(conversation_id=self._conversation_id, user=requester.user)

    async def end(self, *, comes_back: bool) -> None:
        """Unregister the viewer. `comes_back` says that the client will reconnect immediately."""
        if self._joining is not None:
            self._joining.cancel()
            with suppress(asyncio.CancelledError):
                try:
                    await self._joining
                except Exception:
                    logger.exception("A viewer could not be registered")
        # When the server restarts, the viewer stays registered, so that the grace period begins only when a server runs
        # again.
        if self._presence is not None and self._send_queue.close_code != CloseCode.RESTARTING:
            await self._viewers.leave(self._presence, comes_back=comes_back)

    async def _register_viewer(self, user_id: Any) -> None:
        """Register the viewer, and wait for this only briefly, because a client that only reads must not depend on a
        write.
        """
        joining = asyncio.create_task(
            self._join(user_id), name=f"arrival in {self._conversation_id}"
        )
        self._joining = joining  # before the wait, which is all that a cancel of the socket ends
        await asyncio.wait({joining}, timeout=VIEWER_TIMEOUT)
        if joining.done():
            self._joining = None
            joining.result()
        else:
            joining.add_done_callback(self._check_viewer)

    async def _join(self, user_id: Any) -> None:
        self._presence = await self._viewers.join(self._conversation_id, user_id=user_id)

    def _check_viewer(self, joining: asyncio.Task[None]) -> None:
        if not joining.cancelled() and joining.exception() is not None:
            self._send_queue.close(TRY_AGAIN)  # an unregistered viewer would seem to have left

    async def _reaches_back(self, after: int) -> bool:
        return await selectors.reaches_back(conversation_id=self._conversation_id, after=after)

    async def _send_snapshot(self, requester: Requester) -> int:
        snapshot = await selectors.snapshot(
            conversation_id=self._conversation_id, user=requester.user
        )
        messages = await with_html(snapshot["messages"])
        self._send_queue.put(encode(for_reader({**snapshot, "messages": messages})))
        return snapshot["seq"]

    async def _resync(self, turn_id: UUID | None, requester: Requester) -> None:
        if turn_id is None or str(turn_id) not in await self._active_turn_ids():
            await self.feed.catch_up()  # the text is in the log as a message
        elif not await self.feed.send_text(turn_id, user=requester.user):
            self._postponed_texts.add(turn_id)

    async def _send_live_text(self, requester: Requester) -> None:
        for active in (await self._active_turn_ids())[:1]:  # the other turns are queued
            turn_id = UUID(active)
            if not await self.feed.send_text(turn_id, user=requester.user, is_asked=False):
                self._postponed_texts.add(turn_id)

    async def _active_turn_ids(self) -> list[str]:
        return await selectors.active_turn_ids(conversation_id=self._conversation_id)

    async def _requester(self) -> Requester:
        self._user = await current_user(self._scope)
        return self._requester_of(self._user)

    async def _canceller(self) -> Requester:
        """Return the requester of a cancel. If the database does not respond, use the user that was last read from it."""
        try:
            async with asyncio.timeout(CANCELLER_TIMEOUT):
                self._user = await _current_user(self._scope)
        except (TimeoutError, *DATABASE_FAILURES):
            logger.warning("A cancel is obeyed although the database does not say who asks")
        return self._requester_of(self._user)

    def _requester_of(self, user: Any) -> Requester:
        source = CancelSource.API if "token" in self._scope else CancelSource.BUTTON
        return Requester(user=user, conversation_id=self._conversation_id, source=source)

    def _put(self, frame: Frame) -> None:
        self._send_queue.put(encode_frame(frame))


class ChatConsumer(AsyncWebsocketConsumer):
    """The consumer of one socket. It accepts even sockets that it refuses, so that browsers see the close code."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the socket. When it ends for any reason, cancel its tasks and remove it from its groups."""
        self.send_queue = SendQueue(send=self._send_text, close=self.close)
        self.tasks: list[asyncio.Task[None]] = []
        self.reading: asyncio.Task[None] | None = None
        self.groups_joined: tuple[str, ...] = ()
        self.has_ended = asyncio.Event()
        self.user_id: Any = None
        self.client_close_code: int | None = None
        self.frames = RateLimit(app_settings.MAX_FRAMES_PER_MINUTE)
        self.bad_frames = RateLimit(app_settings.MAX_BAD_FRAMES)
        self.is_greeting = False
        self.greeted = asyncio.Event()
        self.ahead: asyncio.Queue[Any] = asyncio.Queue(FRAMES_AHEAD)
        self.cancels: set[asyncio.Task[None]] = set()
        self.language = await run_in_thread(language_of, scope)
        translation.activate(self.language)  # for this task and the tasks that it creates
        self.has_layer = False
        self.lifetime = asyncio.timeout(None)
        try:
            self.has_layer = await broadcast.is_layer_available()
            if not self.has_layer:  # the log poller then finds the events of other processes
                self.channel_layer_alias = NO_LAYER  # type: ignore[misc]  # Channels reads it from the instance
            self.tasks.append(
                asyncio.create_task(self._read_ahead(receive), name="reader of a socket")
            )
            async with self.lifetime:
                await super().__call__(scope, self.ahead.get, send)
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
        """Pass a message directly to its handler.

        Channels would first close old database connections, in the thread in which all database work queues.
        `governance.db` already does this for each query. A piece of streamed text needs no query, so it must not wait
        for that thread.
        """
        await getattr(self, get_handler_name(message))(message)

    async def connect(self) -> None:
        """Accept the socket, then check its user and the user's access to the conversation."""
        await self.accept()
        if open_sockets.are_closing():
            self.send_queue.close(CloseCode.RESTARTING)
        else:
            open_sockets.add(self)
            await self._guarded(self._admit())
        if not self.groups_joined:
            self.send_queue.close(INTERNAL_ERROR)  # no effect after another close code
        self.tasks.append(
            asyncio.create_task(self._run_send_queue(), name="send queue of a socket")
        )

    async def client_frame(self, message: dict[str, Any]) -> None:
        """Respond to a frame of the client."""
        frame = message["frame"]
        if self.send_queue.is_closing:
            return
        if self.groups_joined and not may_send_frame(self.user_id, frame):
            self._refuse_flood()
            return
        if isinstance(frame, Message) and self.cancels:
            await asyncio.wait(self.cancels)  # a pending cancel would also cancel this message
        await self._guarded(self._answer(frame), about=frame)

    async def client_cancel(self, message: dict[str, Any]) -> None:
        """Start the next cancel in order, because the frames before it have been handled."""
        message["is_next"].set()

    async def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Close the socket.

        If the server cannot send a code below 3000, like unmodified Daphne, send the code plus 3000.
        """
        number = 1000 if code is None else int(code)
        try:
            await super().close(number, reason)
        except (OSError, RuntimeError):
            raise
        except Exception:
            if not 1000 < number < 3000:
                raise
            await super().close(number + 3000, reason)

    async def disconnect(self, code: int | None) -> None:
        """Store the client's close code, and wait for the cancels that the client sent before."""
        self.client_close_code = code
        if self.cancels:
            await asyncio.wait(self.cancels, timeout=2 * CANCEL_PATIENCE)

    async def conversation_event(self, message: dict[str, Any]) -> None:
        """Send an event of another process. Events of this process reach the feed directly."""
        if not self.send_queue.is_closing and message.get("origin") != broadcast.origin():
            await self._guarded(self.subscription.feed.receive(message))

    async def user_signed_out(self, message: dict[str, Any]) -> None:
        """Close the socket if its session has ended."""
        if message["session"] == session_fingerprint(self.scope):
            self.send_queue.close(CloseCode.SIGNED_OUT)

    async def user_changed(self, message: dict[str, Any]) -> None:
        """Close the socket if its user no longer has access."""
        if not self.send_queue.is_closing:
            await self._guarded(self.subscription.check_rights())

    async def catch_up_to(self, last_seq: int) -> None:
        """Send events from the log if the channel layer has lost them."""
        feed = self.subscription.feed
        if not self.send_queue.is_closing and last_seq > (feed.sent or 0):
            with translation.override(self.language):
                await self._guarded(feed.catch_up())

    async def catch_up_text(self, part: StreamingText) -> None:
        """Send streamed text that the channel layer has lost."""
        if not self.send_queue.is_closing:
            await self._guarded(self.subscription.feed.catch_up_text(part))

    def update_overview(self, overview: Overview) -> None:
        """Send the overview of other conversations if it has changed and the send queue has room."""
        with translation.override(self.language):
            self.subscription.update_overview(overview)

    async def close_for_restart(self) -> None:
        """Send the remaining events in the log, then close the socket, so that the client reconnects to a running
        process.
        """
        if self.groups_joined:
            await self._guarded(self.subscription.feed.catch_up())
        self.send_queue.close(CloseCode.RESTARTING)

    async def _read_ahead(self, receive: Any) -> None:
        """Queue the client's frames while earlier ones are being handled, and start its cancels."""
        try:
            while (message := await receive())["type"] != "websocket.disconnect":
                if message["type"] != "websocket.receive":
                    await self.ahead.put(message)
                elif (frame := self._parsed(message)) is not None:
                    await self.ahead.put(self._in_line(frame))
        except Exception:
            await self.ahead.put({"type": "websocket.disconnect", "code": INTERNAL_ERROR})
            raise
        await self.ahead.put(message)

    def _parsed(self, message: dict[str, Any]) -> ClientFrame | None:
        if self.send_queue.is_closing:
            return None
        self.send_queue.note_client_frame()
        if not self.frames.allow():
            self._refuse_flood()
            return None
        try:
            return parse(
                message.get("text") or message.get("bytes") or "", max_bytes=MAX_FRAME_BYTES
            )
        except ProtocolError as error:
            self._refuse(error)
            return None

    def _in_line(self, frame: ClientFrame) -> dict[str, Any]:
        if not (isinstance(frame, Operation) and frame.is_cancel):
            return {"type": "client.frame", "frame": frame}
        is_next = asyncio.Event()
        cancel = asyncio.create_task(self._cancel(frame, is_next), name="cancel of a client")
        self.cancels.add(cancel)
        cancel.add_done_callback(self.cancels.discard)
        return {"type": "client.cancel", "is_next": is_next}

    async def _cancel(self, frame: ClientFrame, is_next: asyncio.Event) -> None:
        """Perform a cancel in order.

        If the frames before it are stuck, for example in a query, perform it out of order.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_PATIENCE):
                await is_next.wait()
        if not self.is_greeting:  # the user is not known yet
            await is_next.wait()
        if not self.send_queue.is_closing:
            await self._guarded(self._answer(frame), about=frame)

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
        # Join the groups before the log is read, so that events in between wait in the channel until this handler
        # returns.
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
        return Subscription(self.scope, feed=feed, user=user, send_queue=self.send_queue)

    async def _answer(self, frame: ClientFrame) -> None:
        is_cancel = isinstance(frame, Operation) and frame.is_cancel
        if self.greeted.is_set() or (self.is_greeting and is_cancel):
            await self.subscription.answer(frame)
        elif isinstance(frame, Hello) and frame.protocol == PROTOCOL_VERSION:
            self.is_greeting = True
            local_feeds.add(self.subscription.feed)  # before the log is read; later events wait
            await self.subscription.start(frame)
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
                self.send_queue.close(TRY_AGAIN)  # a new socket can now join its groups

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
        """Await the work.

        If it fails, send an error with the id of the frame `about`, or close the socket if it cannot continue.
        """
        try:
            await work
        except (SignedOut, NotAllowed):
            self.send_queue.close(CloseCode.SIGNED_OUT)
        except ConversationNotFound:
            await self._guarded(self._close_without_conversation())
        except TurnsError as error:
            self._put(operations.refusal(error.code, error.sentence, about=about))
        except Exception as failure:  # the client gets a sentence, and the log gets the traceback
            facts = {"path": self.scope.get("path", ""), "user_id": self.user_id}
            if isinstance(failure, DATABASE_FAILURES):
                logger.warning("The database is away: %s", failure, extra=facts)
                self._put(operations.unavailable(about))
            else:
                logger.exception("A frame could not be handled", extra=facts)
                self._put(operations.server_error(about))
            if isinstance(about, Hello) and not self.greeted.is_set():
                self.send_queue.close(INTERNAL_ERROR)  # the client reconnects with a new “hello”

    async def _close_without_conversation(self) -> None:
        # If the conversation was deleted together with its owner, this raises `SignedOut`.
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
        except TimeoutError:  # the server waits for the client and has not closed the socket
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
            return  # the client was refused
        await self.subscription.end(comes_back=self.client_close_code == CloseCode.COMING_BACK)
        if self.has_layer:
            await broadcast.leave(self.channel_name, *self.groups_joined)

    async def _cancel_tasks(self) -> None:
        tasks = [*self.tasks, *self.cancels, *([self.reading] if self.reading else [])]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                try:
                    await task
                except Exception:
                    logger.exception("A task of a socket failed")
