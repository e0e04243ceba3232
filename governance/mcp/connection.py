"""The connection to one MCP server: opened on demand, and reopened with a growing delay when it broke."""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from governance.core.exceptions import CallNotStarted, OutcomeUnknown, ToolFailed
from governance.core.tools import ToolContext
from governance.mcp.backoff import Backoff
from governance.mcp.errors import FORGOTTEN, RequestNotSent, ResponseLost, ServerUnavailable
from governance.mcp.specs import FoundTool, McpTiming, ServerSpec

if TYPE_CHECKING:
    from governance.mcp.session import McpSession

logger = logging.getLogger(__name__)

SWITCHED_OFF = "it was switched off or changed by an administrator"
_CLOSE_BOUND = 5.0
_UNHEARD = "The MCP server {!r} has not been told of the call."


class ConnectionObserver(Protocol):
    """Told how a server does."""

    def tools_found(self, connection: "ServerConnection", tools: Sequence[FoundTool]) -> None:
        """The server has said which tools it has."""

    def failed(self, connection: "ServerConnection", reason: str) -> None:
        """The server could not be connected, or its session broke; `reason` is a clause that is safe to show."""


class ServerConnection:
    """Keeps at most one session with a server. Lives on one event loop; `tools` are those of its last list."""

    def __init__(
        self,
        spec: ServerSpec,
        *,
        timing: McpTiming,
        allow_private: Callable[[], bool],
        observer: ConnectionObserver,
    ) -> None:
        self.spec = spec
        self.tools: tuple[FoundTool, ...] = ()
        self.starts = 0
        self._timing = timing
        self._allow_private = allow_private
        self._observer = observer
        self._backoff = Backoff(timing)
        self._session: McpSession | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._replaced: set[McpSession] = set()  # stuck, with calls that may still be answered
        self._reason = ""
        self._late_before = 0
        self._is_cautious = False
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._session is not None

    @property
    def late_answers(self) -> int:
        """Answers that came after their callers had left: ignored, and counted here."""
        return self._late_before + (self._session.late_answers if self._session else 0)

    def connect_soon(self) -> "asyncio.Task[None] | None":
        """Start to connect if that makes sense now. Return the attempt, or None if no new one was started."""
        if self._session is not None or self._connecting is not None or self._backoff.wait > 0:
            return None
        return None if self._is_closed else self._connect()

    async def call(
        self, found: FoundTool, arguments: Mapping[str, Any], context: ToolContext
    ) -> str:
        """Call a tool of the server; connect first if needed. A cancel releases the caller at once.

        Raises:
            CallNotStarted: the server cannot be used now, or has not heard of the call before it was cancelled.
            ToolFailed: the tool answered with an error, or the server refused the call.
            OutcomeUnknown: the server was asked and gave no answer of use, or was told to stop (`MayStillRun`).
        """
        try:
            session = self._session or await self._connected()
        except ServerUnavailable as gone:
            raise CallNotStarted(self._sentence(gone.reason)) from None
        except asyncio.CancelledError:
            raise CallNotStarted(_UNHEARD.format(self.spec.name)) from None
        lost = ToolFailed if found.is_read_only else OutcomeUnknown
        try:
            result = await session.call(found.name, arguments, report=context.report)
        except RequestNotSent as unheard:
            said = self._sentence(unheard.reason) if unheard.reason else ""
            raise CallNotStarted(said or _UNHEARD.format(self.spec.name)) from None
        except ServerUnavailable as gone:
            raise lost(self._sentence(gone.reason)) from None
        except ResponseLost as answer:
            raise lost(str(answer)) from None
        return await result.as_text(context.show)

    async def aclose(self, reason: str = SWITCHED_OFF) -> None:
        """Close the session and its pending calls, which fail at once."""
        self._is_closed = True
        self._reason = reason
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._session is not None:
            self._drop(self._session, reason)
        for session in self._replaced:
            session.close(reason)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _connected(self) -> "McpSession":
        """Wait until there is a session. Raise `ServerUnavailable` if there is none to be had now."""
        if self._connecting is None:
            if self._is_closed or self._backoff.wait > 0:
                raise ServerUnavailable(self._reason)
            self._connect()
        assert self._connecting is not None  # noqa: S101 - for the type checker
        await asyncio.wait({self._connecting})
        if self._session is None:
            raise ServerUnavailable(self._reason)
        return self._session

    def _connect(self) -> "asyncio.Task[None]":
        self._connecting = asyncio.create_task(
            self._open(), name=f"connecting MCP server {self.spec.name}"
        )
        self._connecting.add_done_callback(self._on_connected)
        return self._connecting

    def _on_connected(self, attempt: "asyncio.Task[None]") -> None:
        self._connecting = None
        if not attempt.cancelled() and (error := attempt.exception()) is not None:
            logger.error("Connecting an MCP server failed", exc_info=error)
            self._failed("it could not be connected; the details are in the log")

    async def _make_session(self) -> "McpSession":
        # In a thread, as importing the SDK the first time reads a lot of files.
        module = await asyncio.to_thread(import_module, "governance.mcp.session")
        session: McpSession = module.McpSession(
            self.spec,
            timing=self._timing,
            allow_private=self._allow_private(),
            is_cautious=self._is_cautious,
            on_tools=self._tools_found,
        )
        return session

    async def _open(self) -> None:
        session = await self._make_session()
        self.starts += 1
        session.begin()
        first: set[asyncio.Future[Any]] = {session.ready, session.ended}
        try:
            await asyncio.wait(
                first,
                timeout=self._timing.connect_timeout,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            self._drop(session, self._reason)
            raise
        if session.ready.done() and not session.ended.done():
            self._adopt(session)
            return
        reason = session.ended.result() if session.ended.done() else "it did not answer in time"
        self._drop(session, reason)
        self._is_cautious = not self._is_cautious
        self._failed(reason)

    def _adopt(self, session: "McpSession") -> None:
        loop = asyncio.get_running_loop()
        self._session = session
        began_at = loop.time()

        def over(ended: "asyncio.Future[str]") -> None:
            if self._session is not session:
                return
            self._drop(session, ended.result())
            if ended.result() != FORGOTTEN:  # after that, a new session is all that it takes
                self._backoff.record_uptime(loop.time() - began_at)
                self._failed(ended.result())

        def stuck(why: "asyncio.Future[str]") -> None:
            if self._session is session:
                self._replace(session)
                self._backoff.record_uptime(loop.time() - began_at)
                self._failed(why.result())

        session.ended.add_done_callback(over)
        session.stuck.add_done_callback(stuck)

    def _drop(self, session: "McpSession", reason: str) -> None:
        """Retire the session, and wait for its end in a background task."""
        if self._session is session:
            self._session = None
            self._late_before += session.late_answers
        session.close(reason)
        task = asyncio.create_task(
            self._wait_closed(session), name=f"closing MCP server {self.spec.name}"
        )
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _replace(self, session: "McpSession") -> None:
        """Let the session end with its last call; new calls open a new one."""
        self._session = None
        self._replaced.add(session)
        task = asyncio.create_task(
            self._close_when_unused(session), name=f"leaving MCP server {self.spec.name}"
        )
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_when_unused(self, session: "McpSession") -> None:
        await session.unused()
        self._replaced.discard(session)
        self._late_before += session.late_answers
        session.close(self._reason)
        await self._wait_closed(session)

    async def _wait_closed(self, session: "McpSession") -> None:
        if not await session.closed(within=_CLOSE_BOUND):
            logger.warning("An MCP session does not close", extra={"server": self.spec.name})

    def _tools_found(self, tools: Sequence[FoundTool]) -> None:
        if not self._is_closed:
            self.tools = tuple(tools)
            self._observer.tools_found(self, tools)

    def _failed(self, reason: str) -> None:
        self._reason = reason
        self._backoff.record_failure()
        if not self._is_closed:
            facts = {"server": self.spec.name, "reason": reason}
            logger.warning("An MCP server cannot be used: %s", reason, extra=facts)
            self._observer.failed(self, reason)

    def _sentence(self, reason: str) -> str:
        wait = math.ceil(self._backoff.wait)
        again = f"try again in {wait} s" if wait > 0 and not self._is_closed else "try again later"
        return f"The MCP server {self.spec.name!r} is not running: {reason}; {again}."
