"""The WebSocket of one conversation: parses, calls one service, answers. It never waits for a turn (invariant 1).

Channels handles one message of a socket at a time, so a handler that waited would hold back the `cancel` behind it.
What is sent goes through the outbox, whose task is the only one that waits for the client.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any
from uuid import UUID

from channels.consumer import get_handler_name
from channels.generic.websocket import AsyncWebsocketConsumer
from django.utils.translation import gettext as _

from governance import CancelSource
from turns import runtime, selectors
from turns.attendance import Viewing
from turns.exceptions import ConversationNotFound, NotAllowed, TurnsError
from turns.overviews import Overview
from webchat import __version__, broadcast, operations, sockets
from webchat.conf import app_settings
from webchat.elsewhere import Elsewhere
from webchat.exceptions import ProtocolError, SignedOut
from webchat.feed import Feed, encode
from webchat.frames import Frame, Heartbeat, Welcome
from webchat.identity import current_user, session_fingerprint
from webchat.limits import RateLimit
from webchat.lookout import lookout
from webchat.markdown import with_html
from webchat.operations import Asker
from webchat.outbox import TRY_AGAIN, Outbox
from webchat.protocol import (
    PROTOCOL_VERSION,
    ClientFrame,
    CloseCode,
    Hello,
    Message,
    Ping,
    Resync,
    parse,
)
from webchat.rates import TOO_MANY_FRAMES, TOO_MANY_SOCKETS, may_open, may_send

logger = logging.getLogger(__name__)

INTERNAL_ERROR = 1011
PULSE_ATTEMPTS = 3
ARRIVAL_PATIENCE = 1.0  # seconds
NO_LAYER = "none"  # no project calls a channel layer so


class ChatConsumer(AsyncWebsocketConsumer):
    """One socket. It is accepted before it is refused, so that browsers see the close code."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the socket; whatever ends it, leave no task and no group membership behind."""
        self.outbox = Outbox(send=self._send_text, close=self.close)
        self.tasks: list[asyncio.Task[None]] = []
        self.groups_joined: tuple[str, ...] = ()
        self.has_gone = asyncio.Event()
        self.user_id: Any = None
        self.viewing: Viewing | None = None
        self.left_with: int | None = None
        self.has_layer = False
        self.texts_owed: set[UUID] = set()
        try:
            self.has_layer = await broadcast.layer_answers()
            if not self.has_layer:  # the log has everything but streamed text
                self.channel_layer_alias = NO_LAYER  # type: ignore[misc]  # Channels reads it of the instance
            await super().__call__(scope, receive, send)
        finally:
            sockets.gone(self)
            await lookout.leave(self)
            await self._end_tasks()
            await self._depart()
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
        sockets.opened(self)
        await self._guarded(self._enter())
        if not self.groups_joined:
            self.outbox.close(INTERNAL_ERROR)  # unless it was refused for a reason of its own
        self.tasks.append(
            asyncio.create_task(self.outbox.run(self._on_room), name="outbox of a socket")
        )

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Answer one frame of the client."""
        if self.outbox.is_closing:
            return
        if not self.frames.allow():
            self._refuse_flood()
            return
        try:
            frame = parse(text_data or bytes_data or "", max_bytes=app_settings.MAX_FRAME_BYTES)
        except ProtocolError as error:
            self._refuse(error)
            return
        if self.groups_joined and not may_send(self.user_id, frame):
            self._refuse_flood()
        else:
            await self._guarded(self._answer(frame), about=frame)

    async def disconnect(self, code: int | None) -> None:
        """Remember with which code the client has left."""
        self.left_with = code

    async def conversation_event(self, message: dict[str, Any]) -> None:
        """Pass on an event that was published while this socket looks."""
        if not self.outbox.is_closing:
            await self._guarded(self.feed.take(message))

    async def user_signed_out(self, message: dict[str, Any]) -> None:
        """Close if it was this socket's session that ended."""
        if message["session"] == session_fingerprint(self.scope):
            self.outbox.close(CloseCode.SIGNED_OUT)

    async def user_changed(self, message: dict[str, Any]) -> None:
        """Close if the user may not be here any more."""
        if not self.outbox.is_closing:
            await self._guarded(self._check_rights())

    async def log_has(self, last_seq: int) -> None:
        """Read on in the log if the channel layer has lost something."""
        if not self.outbox.is_closing and last_seq > (self.feed.sent or 0):
            await self._guarded(self.feed.catch_up())

    def see(self, overview: Overview) -> None:
        """Tell the client how things stand elsewhere, where that is new to it and it reads at all."""
        if self.outbox.has_room and (frame := self.elsewhere.news(overview)) is not None:
            self._put(frame)

    async def say_goodbye(self) -> None:
        """Send what the log has, and let the client come back to another process, or to this one's successor."""
        if self.groups_joined:
            await self._guarded(self.feed.catch_up())
        self.outbox.close(CloseCode.RESTARTING)

    async def _enter(self) -> None:
        user = await current_user(self.scope)
        if not may_open(user.pk):
            self._put(operations.not_understood("too_many_sockets", TOO_MANY_SOCKETS))
            self.outbox.close(CloseCode.TOO_MANY)
            return
        self.user_id = user.pk
        self.conversation_id = operations.uuid_of(
            self.scope["url_route"]["kwargs"]["conversation_id"]
        ) or UUID(int=0)
        await selectors.get_conversation(conversation_id=self.conversation_id, user=user)
        self.feed = Feed(conversation_id=self.conversation_id, outbox=self.outbox)
        self.elsewhere = Elsewhere(user_id=user.pk, conversation_id=self.conversation_id)
        self.groups_joined = (
            broadcast.conversation_group(self.conversation_id),
            broadcast.user_group(user.pk),
        )
        # Joined before the log is read: what happens in between waits in the channel until this handler is done.
        await self._join()
        self.tasks.append(
            asyncio.create_task(self._beat(), name=f"heartbeat of {self.conversation_id}")
        )

    async def _answer(self, frame: ClientFrame) -> None:
        if not self.greeted.is_set():
            await self._greet(frame)
            return
        asker = await self._asker()
        match frame:
            case Hello():
                self._put(
                    operations.not_understood("already_greeted", _("“hello” is sent once, first."))
                )
            case Ping():
                await self._pulse()
            case Message():
                answer = await operations.say(frame, asker=asker)
                if answer is not None:
                    self._put(answer)
            case Resync():
                await self._resync(operations.uuid_of(frame.turn_id), asker)
            case _:
                self._put(await operations.operate(frame, asker=asker))

    async def _greet(self, frame: ClientFrame) -> None:
        if not isinstance(frame, Hello) or frame.protocol != PROTOCOL_VERSION:
            self._put(
                operations.not_understood(
                    "bad_hello", _("The first frame must be “hello” with protocol 1.")
                )
            )
            self.outbox.close(CloseCode.BAD_FIRST_FRAME)
            return
        asker = await self._asker()
        self.attendance = (await runtime.ensure_started()).attendance
        await self._arrive(asker)
        last_seq = await selectors.last_seq(conversation_id=self.conversation_id)
        self._put(
            Welcome(server_version=__version__, last_seq=last_seq, user=asker.user.get_username())
        )
        if (
            frame.after is not None
            and frame.after <= last_seq
            and await self._reaches_back(frame.after)
        ):
            self.feed.open_at(frame.after)
        else:
            self.feed.open_at(await self._send_snapshot(asker))
        self.greeted.set()
        lookout.enter(self)
        await self.feed.catch_up()

    async def _arrive(self, asker: Asker) -> None:
        """Note who looks. That is a write, and who only wants to read does not wait long for one."""
        noting = asyncio.create_task(
            self._note_arrival(asker.user.pk), name=f"arrival in {self.conversation_id}"
        )
        await asyncio.wait({noting}, timeout=ARRIVAL_PATIENCE)
        if noting.done():
            noting.result()
        else:
            self.tasks.append(noting)
            noting.add_done_callback(self._check_arrival)

    async def _note_arrival(self, user_id: Any) -> None:
        self.viewing = await self.attendance.arrive(self.conversation_id, user_id=user_id)

    def _check_arrival(self, noting: asyncio.Task[None]) -> None:
        if not noting.cancelled() and noting.exception() is not None:
            self.outbox.close(TRY_AGAIN)  # who is not on the list would be taken for gone

    async def _reaches_back(self, after: int) -> bool:
        return await selectors.reaches_back(conversation_id=self.conversation_id, after=after)

    async def _send_snapshot(self, asker: Asker) -> int:
        snapshot = await selectors.snapshot(conversation_id=self.conversation_id, user=asker.user)
        self.outbox.put(encode({**snapshot, "messages": await with_html(snapshot["messages"])}))
        seq: int = snapshot["seq"]
        return seq

    async def _resync(self, turn_id: UUID | None, asker: Asker) -> None:
        if turn_id is None or str(turn_id) not in await self._active():
            await self.feed.catch_up()  # the log has its text, as a message
        elif not await self.feed.replace_text(turn_id, user=asker.user):
            self.texts_owed.add(turn_id)

    async def _beat(self) -> None:
        try:
            async with asyncio.timeout(app_settings.HELLO_TIMEOUT):
                await self.greeted.wait()
        except TimeoutError:
            self.outbox.close(CloseCode.BAD_FIRST_FRAME)
        while not self.outbox.is_closing:
            await asyncio.sleep(app_settings.HEARTBEAT_INTERVAL)
            await self._join()
            await self._guarded(self._pulse())
            if not self.has_layer and await broadcast.layer_answers():
                self.outbox.close(TRY_AGAIN)  # a new socket can hear it

    async def _pulse(self) -> None:
        await self._check_rights()
        for _attempt in range(PULSE_ATTEMPTS):
            await self.feed.catch_up()
            sent = self.feed.sent or 0
            active = await self._active()
            if await selectors.last_seq(conversation_id=self.conversation_id) == sent:
                break  # nothing happened in between: the list and the number belong together
        self._put(Heartbeat(last_seq=sent, active=active))

    async def _check_rights(self) -> None:
        asker = await self._asker()  # raises if nobody is signed in any more
        # … or if who watches as staff may not do so any more
        await selectors.get_conversation(conversation_id=self.conversation_id, user=asker.user)

    async def _active(self) -> list[str]:
        return await selectors.active_turn_ids(conversation_id=self.conversation_id)

    async def _asker(self) -> Asker:
        user = await current_user(self.scope)
        source = CancelSource.API if "token" in self.scope else CancelSource.BUTTON
        return Asker(user=user, conversation_id=self.conversation_id, source=source)

    async def _on_room(self) -> None:
        await self._guarded(self._make_up())

    async def _make_up(self) -> None:
        """Send what there was no room for: events, and the texts that were asked for."""
        await self.feed.catch_up()
        owed, self.texts_owed = self.texts_owed, set()
        for turn_id in owed:
            await self._resync(turn_id, await self._asker())

    async def _guarded(self, work: Awaitable[None], *, about: ClientFrame | None = None) -> None:
        """Do it; if that fails, say so, with the id of the frame that it was about, and go on."""
        try:
            await work
        except (SignedOut, NotAllowed):
            self.outbox.close(CloseCode.SIGNED_OUT)
        except ConversationNotFound:
            self.outbox.close(CloseCode.NO_SUCH_CONVERSATION)
        except TurnsError as error:
            self._put(operations.not_understood(error.code, error.sentence, about=about))
        except Exception:  # the edge: the client gets a sentence, the log gets the rest
            facts = {"path": self.scope.get("path", ""), "user_id": self.user_id}
            logger.exception("A frame could not be handled", extra=facts)
            self._put(operations.failed(about))
            if isinstance(about, Hello) and not self.greeted.is_set():
                self.outbox.close(INTERNAL_ERROR)  # the client comes back, with another “hello”

    def _refuse(self, error: ProtocolError) -> None:
        self._put(operations.not_understood(error.code, error.sentence))
        if not self.greeted.is_set():
            self.outbox.close(CloseCode.BAD_FIRST_FRAME)
        elif not self.bad_frames.allow():
            self.outbox.close(CloseCode.TOO_MANY)

    def _refuse_flood(self) -> None:
        self._put(operations.not_understood("too_many_frames", TOO_MANY_FRAMES))
        self.outbox.close(CloseCode.TOO_MANY)

    def _put(self, frame: Frame) -> None:
        self.outbox.put(encode(frame.model_dump(mode="json")))

    async def _send_text(self, text: str) -> None:
        await self.send(text_data=text)

    async def _join(self) -> None:
        if self.has_layer:
            await broadcast.join(self.channel_name, *self.groups_joined)

    async def _leave(self) -> None:
        if self.groups_joined and self.has_layer:
            await broadcast.leave(self.channel_name, *self.groups_joined)

    async def _depart(self) -> None:
        # who is sent away by a server that restarts is still there: the grace begins when there is one again
        if self.viewing is not None and self.outbox.close_code != CloseCode.RESTARTING:
            await self.attendance.depart(
                self.viewing, comes_back=self.left_with == CloseCode.COMING_BACK
            )

    async def _end_tasks(self) -> None:
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with suppress(asyncio.CancelledError):
                try:
                    await task
                except Exception:
                    logger.exception("A task of a socket failed")
