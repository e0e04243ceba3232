"""The connection to one MCP server: opened on demand, and reopened with a growing delay after failures."""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from governance.core.calls import Progress
from governance.core.containment import outside
from governance.core.exceptions import CallNotStarted, OutcomeUnknown, ToolFailed
from governance.core.tools import ToolContext
from governance.mcp.backoff import Backoff
from governance.mcp.errors import FORGOTTEN, RequestNotSent, ResponseLost, ServerUnavailable
from governance.mcp.specs import FoundTool, McpTiming, ServerSpec, Transport
from governance.threads import run_in_thread

if TYPE_CHECKING:
    from governance.mcp.session import McpSession

logger = logging.getLogger(__name__)

SWITCHED_OFF = "it was switched off or changed by an administrator"
_CLOSE_BOUND = 5.0
_UNLISTED = "it may not have the environment variable {}, which is not in GOVERNANCE_MCP_VARIABLES"
_UNHEARD = "The call was not sent to the MCP server {!r}."


class ConnectionObserver(Protocol):
    """Receives the events of a server's connection."""

    def tools_found(self, connection: "ServerConnection", tools: Sequence[FoundTool]) -> None:
        """Called when the server has listed its tools."""

    def failed(self, connection: "ServerConnection", reason: str) -> None:
        """Called when the server cannot be connected, or its session breaks.

        `reason` is a clause that is safe to show.
        """


class ServerConnection:
    """A connection to one server, which has at most one session for new calls. It belongs to one event loop.

    `tools` are the tools that the server listed last. `instructions` is the text that the server sent at the start of
    the last session, cut to a maximum length.
    """

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
        self.instructions = ""
        self.starts = 0
        self._timing = timing
        self._allow_private = allow_private
        self._observer = observer
        self._backoff = Backoff(timing)
        self._session: McpSession | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._attempted_at = -math.inf  # by the loop's clock
        self._closing: set[asyncio.Task[None]] = set()
        # Sessions that get no new calls, but may still answer earlier ones.
        self._replaced: set[McpSession] = set()
        self._reason = ""
        self._late_before = 0
        self._is_cautious = False
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def _is_closed(self) -> bool:
        return self._closed.done()

    @property
    def is_connected(self) -> bool:
        return self._session is not None

    @property
    def late_answers(self) -> int:
        """The number of responses that arrived after their callers had left."""
        return self._late_before + (self._session.late_answers if self._session else 0)

    def connect_soon(self) -> "asyncio.Task[None] | None":
        """Start to connect, and return the task of the attempt.

        Return None if the server is connected or being connected, in a pause after a failure, or closed.
        """
        if self._session is not None or self._connecting is not None or self._backoff.wait > 0:
            return None
        return None if self._is_closed else self._connect()

    @property
    def is_connecting(self) -> bool:
        return self._connecting is not None

    @property
    def is_starting(self) -> bool:
        """Whether the server is being connected and has not listed its tools yet."""
        return self.is_connecting and not self.tools

    async def attempted(self) -> None:
        """Wait until the current attempt to connect has ended, but no longer than turns wait for the server."""
        timing = self._timing
        most = timing.return_timeout if self._reason else timing.ready_timeout
        seconds = self._attempted_at + most - asyncio.get_running_loop().time()
        if self._connecting is not None and seconds > 0:
            await asyncio.wait({self._connecting}, timeout=seconds)

    async def call(
        self, tool: FoundTool, arguments: Mapping[str, Any], context: ToolContext
    ) -> str:
        """Call a tool of the server, and return its result as text. A cancel releases the caller immediately.

        If the server is not connected or is restarting, wait for its connection first. A request that was sent is never
        repeated.

        Raises:
            CallNotStarted: the server cannot be used now, or the call was cancelled before it was sent.
            ToolFailed: the tool returned an error, the server refused the call, or a read-only tool got no usable
                response.
            OutcomeUnknown: another tool got no usable response, or the call was cancelled (`MayStillRun`).
            ResultRefused: the result contains numbers that JSON does not have.
        """
        failure = ToolFailed if tool.is_read_only else OutcomeUnknown
        while True:
            try:
                session = self._usable_session() or await self._restarted(context)
            except ServerUnavailable as gone:
                raise CallNotStarted(self._sentence(gone.reason)) from None
            except asyncio.CancelledError:
                raise CallNotStarted(_UNHEARD.format(self.spec.name)) from None
            try:
                result = await session.call(
                    tool.name, arguments, report=context.report, ask=context.ask_form
                )
            except RequestNotSent as unheard:
                if unheard.reason and self._session is not session:
                    continue
                sentence = self._sentence(unheard.reason) if unheard.reason else ""
                raise CallNotStarted(sentence or _UNHEARD.format(self.spec.name)) from None
            except ServerUnavailable as gone:
                raise failure(self._sentence(gone.reason)) from None
            except ResponseLost as answer:
                raise failure(str(answer)) from None
            return await result.as_text(context.show)

    async def aclose(self, reason: str = SWITCHED_OFF) -> None:
        """Close the connection and its session. Pending calls fail immediately with this reason."""
        if not self._closed.done():
            self._closed.set_result(None)
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

    def _usable_session(self) -> "McpSession | None":
        """Return the session, or None if a new call needs another one.

        A command does not report for which call it asks a person. Therefore, if it may ask people, a new call never
        shares a process with an abandoned call.
        """
        session = self._session
        if session is None or not self.spec.asks_people or self.spec.transport is Transport.HTTP:
            return session
        if session.has_given_up:
            self._replace(session)
        return self._session

    async def _restarted(self, context: ToolContext) -> "McpSession":
        """Wait for a session. After a failed attempt, try again if the call has more time left than the next pause.

        Raise `ServerUnavailable` if it has less time left.
        """
        loop = asyncio.get_running_loop()
        gives_up_at = loop.time() + self._timing.restart_timeout  # for a call without a limit
        while True:
            try:
                context.report(Progress(message=self._waiting_sentence()))
                session = await self._connected()
            except ServerUnavailable:
                seconds = context.time_left()
                pause = self._backoff.wait
                if self._is_closed or pause >= (
                    gives_up_at - loop.time() if seconds is None else seconds
                ):
                    raise
                await asyncio.wait({self._closed}, timeout=pause)
            else:
                context.report(Progress(message=f"The MCP server {self.spec.name!r} is running."))
                return session

    def _waiting_sentence(self) -> str:
        why = f": {self._reason}" if self._reason else ""
        return f"Waiting for the MCP server {self.spec.name!r}{why}."

    async def _connected(self) -> "McpSession":
        """Wait for a session. Raise `ServerUnavailable` if none can be opened now."""
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
        self._attempted_at = asyncio.get_running_loop().time()
        self._connecting = asyncio.create_task(
            self._open(), name=f"connecting MCP server {self.spec.name}", context=outside()
        )
        self._connecting.add_done_callback(self._on_connected)
        return self._connecting

    def _on_connected(self, attempt: "asyncio.Task[None]") -> None:
        self._connecting = None
        if not attempt.cancelled() and (error := attempt.exception()) is not None:
            logger.error("Connecting an MCP server failed", exc_info=error)
            self._failed("it could not be connected; the details are in the log")

    async def _make_session(self) -> "McpSession":
        # In a thread, because the first import of the SDK reads many files.
        module = await run_in_thread(import_module, "governance.mcp.session")
        session: McpSession = module.McpSession(
            self.spec,
            timing=self._timing,
            allow_private=self._allow_private(),
            is_cautious=self._is_cautious,
            on_tools=self._tools_found,
            on_instructions=self._instructions_found,
        )
        return session

    async def _open(self) -> None:
        if self.spec.unlisted:
            self._failed(_UNLISTED.format(self.spec.unlisted[0]))
            return
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
            self._reason = ended.result()
            self._drop(session, self._reason)
            # A server that has forgotten the session only needs a new one.
            if ended.result() != FORGOTTEN:
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
            self._wait_closed(session),
            name=f"closing MCP server {self.spec.name}",
            context=outside(),
        )
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _replace(self, session: "McpSession") -> None:
        """Use another session for new calls, and end this one after its last call."""
        self._session = None
        self._replaced.add(session)
        task = asyncio.create_task(
            self._close_when_unused(session),
            name=f"leaving MCP server {self.spec.name}",
            context=outside(),
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

    def _instructions_found(self, text: str) -> None:
        self.instructions = text

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
