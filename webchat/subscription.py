"""One client's subscription to a conversation: the welcome, the snapshot, the events, and the answers to its frames."""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from governance import CancelSource
from turns import selectors
from turns.presence.tracker import Presence
from turns.running import runtime
from webchat import __version__, operations
from webchat.feed import Feed, encode, encode_frame
from webchat.identity import current_user, user_of
from webchat.markdown import with_html
from webchat.overview_tracker import EncodedOverview, OverviewTracker
from webchat.protocol.client_frames import ClientFrame, Hello, Message, Ping, Resync
from webchat.protocol.constants import CloseCode
from webchat.protocol.operation import Requester
from webchat.protocol.server_frames import Frame, Heartbeat, Welcome
from webchat.send_queue import TRY_AGAIN, SendQueue
from webchat.translation import for_reader

logger = logging.getLogger(__name__)

HEARTBEAT_ATTEMPTS = 3
VIEWER_TIMEOUT = 1.0  # seconds


class Subscription:
    """What one socket gets of a conversation, and asks of it. The socket handles what its methods raise."""

    def __init__(self, scope: Any, *, feed: Feed, user_id: Any, send_queue: SendQueue) -> None:
        self._scope = scope
        self._conversation_id = feed.conversation_id
        self._send_queue = send_queue
        self._overview = OverviewTracker(user_id=user_id, conversation_id=feed.conversation_id)
        self._postponed_texts: set[UUID] = set()
        self._joining: asyncio.Task[None] | None = None
        self._presence: Presence | None = None
        self.feed = feed

    async def start(self, *, after: int | None, html: bool = False) -> None:
        """Send the welcome, and the snapshot unless the log reaches back to the event that the client has seen last.

        With `html`, send the text so far again, and its finished blocks.
        """
        requester = await self._requester()
        self._viewers = (await runtime.ensure_started()).presence
        await self._register_viewer(requester.user.pk)
        last_seq = await selectors.last_seq(conversation_id=self._conversation_id)
        user = requester.user.get_username()
        self._put(Welcome(server_version=__version__, last_seq=last_seq, user=user))
        if after is not None and after <= last_seq and await self._reaches_back(after):
            self.feed.start_after(after)
        else:
            self.feed.start_after(await self._send_snapshot(requester))
        if html:
            self.feed.ask_for_html()
            await self._send_live_text(requester)

    async def answer(self, frame: ClientFrame) -> None:
        """Answer a frame of a client that has said hello."""
        if isinstance(frame, Message):  # who it is from is found out where it is stored
            requester = self._requester_of(partial(user_of, self._scope))
        else:
            requester = await self._requester()
        match frame:
            case Hello():
                self._put(operations.refusal("already_greeted", _("“hello” is sent once, first.")))
            case Ping():
                await self.send_heartbeat()
            case Message():
                answer = await operations.submit_message(frame, requester=requester)
                if answer is not None:
                    self._put(answer)
            case Resync():
                await self._resync(operations.uuid_of(frame.turn_id), requester)
            case _:
                self._put(await operations.run_operation(frame, requester=requester))

    async def send_heartbeat(self) -> None:
        """Send the number of the last event, and the turns that are not over."""
        await self.check_rights()
        for _attempt in range(HEARTBEAT_ATTEMPTS):
            await self.feed.catch_up()
            sent = self.feed.sent or 0
            active = await self._active_turn_ids()
            if await selectors.last_seq(conversation_id=self._conversation_id) == sent:
                break  # nothing happened in between: the list and the number belong together
        self._put(Heartbeat(last_seq=sent, active=active))

    def update_overview(self, overview: EncodedOverview) -> None:
        """Send the status of other conversations, if it is new to the client and there is room."""
        if self._send_queue.has_room and (frame := self._overview.changes(overview)) is not None:
            self._send_queue.put(frame)

    async def send_postponed(self) -> None:
        """Send what there was no room for: events, and the texts that were asked for."""
        await self.feed.catch_up()
        postponed, self._postponed_texts = self._postponed_texts, set()
        for turn_id in postponed:
            await self._resync(turn_id, await self._requester())

    async def check_rights(self) -> None:
        """Raise if nobody is signed in any more, or may not see the conversation any more."""
        requester = await self._requester()
        await selectors.get_conversation(conversation_id=self._conversation_id, user=requester.user)

    async def end(self, *, comes_back: bool) -> None:
        """Unregister the viewer, who may come back at once."""
        if self._joining is not None:
            self._joining.cancel()
            with suppress(asyncio.CancelledError):
                try:
                    await self._joining
                except Exception:
                    logger.exception("A viewer could not be registered")
        # After a restart the viewer is still there: the grace period begins when there is a server again.
        if self._presence is not None and self._send_queue.close_code != CloseCode.RESTARTING:
            await self._viewers.leave(self._presence, comes_back=comes_back)

    async def _register_viewer(self, user_id: Any) -> None:
        """Register who looks. That is a write, and who only wants to read does not wait long for one."""
        joining = asyncio.create_task(
            self._join(user_id), name=f"arrival in {self._conversation_id}"
        )
        await asyncio.wait({joining}, timeout=VIEWER_TIMEOUT)
        if joining.done():
            joining.result()
        else:
            self._joining = joining
            joining.add_done_callback(self._check_viewer)

    async def _join(self, user_id: Any) -> None:
        self._presence = await self._viewers.join(self._conversation_id, user_id=user_id)

    def _check_viewer(self, joining: asyncio.Task[None]) -> None:
        if not joining.cancelled() and joining.exception() is not None:
            self._send_queue.close(TRY_AGAIN)  # who is not registered would be taken for gone

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
            await self.feed.catch_up()  # the log has its text, as a message
        elif not await self.feed.send_text(turn_id, user=requester.user):
            self._postponed_texts.add(turn_id)

    async def _send_live_text(self, requester: Requester) -> None:
        for active in (await self._active_turn_ids())[:1]:  # the others wait for it
            turn_id = UUID(active)
            if not await self.feed.send_text(turn_id, user=requester.user, is_asked=False):
                self._postponed_texts.add(turn_id)

    async def _active_turn_ids(self) -> list[str]:
        return await selectors.active_turn_ids(conversation_id=self._conversation_id)

    async def _requester(self) -> Requester:
        return self._requester_of(await current_user(self._scope))

    def _requester_of(self, user: Any) -> Requester:
        source = CancelSource.API if "token" in self._scope else CancelSource.BUTTON
        return Requester(user=user, conversation_id=self._conversation_id, source=source)

    def _put(self, frame: Frame) -> None:
        self._send_queue.put(encode_frame(frame))
