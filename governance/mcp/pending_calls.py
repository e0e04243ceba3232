"""The pending calls of one session. Each runs in a task of its own, and its caller waits for a future."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from mcp import Client, types
from mcp.shared.exceptions import MCPError

from governance.core.calls import Progress
from governance.core.exceptions import MayStillRun
from governance.core.excerpts import shortened
from governance.core.invokers.worker_errors import ResultRefused
from governance.mcp.error_messages import explain
from governance.mcp.errors import RequestNotSent, ResponseLost, ServerUnavailable
from governance.mcp.request_state import RequestState, current_request
from governance.mcp.results import McpResult, error_text, failure_of, read_result

logger = logging.getLogger(__name__)

_NO_LIMIT = 1e9  # seconds: how long a tool may take is the executor's business
_REPORT_LENGTH = 500
_LAST_WORDS = 1.0
_WORDLESS = "Server returned an error response"  # the SDK's own words for a status

Report = Callable[[Progress], None]


class PendingCalls:
    """Sends calls to the server and releases callers at once. `ended` resolves with a clause when the session is over."""

    def __init__(self, server_name: str, *, ended: "asyncio.Future[str]") -> None:
        self._server_name = server_name
        self._ended = ended
        self._answers: dict[asyncio.Task[None], asyncio.Future[McpResult]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def running(self) -> "set[asyncio.Task[None]]":
        """The tasks that wait for answers."""
        return set(self._answers)

    async def send(
        self, client: Client, tool_name: str, arguments: Mapping[str, Any], *, report: Report
    ) -> McpResult:
        """Return the tool's answer. A cancel notifies the server, and does not wait for it.

        Raises:
            MayStillRun: it was cancelled; whether the tool stops is the server's affair.
            RequestNotSent: it was cancelled, or the session ended, before the server could hear of the call.
            ServerUnavailable: the session ended before the answer came.
            ResponseLost: what came is no answer, or an error that does not say whether the tool ran.
            ToolFailed: the server refused the call.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[McpResult] = loop.create_future()
        request_state = RequestState()
        asking = loop.create_task(
            self._send(client, answer, tool_name, dict(arguments), report, request_state),
            name=f"asking MCP server {self._server_name} for {tool_name}",
        )
        self._answers[asking] = answer
        asking.add_done_callback(self._forget)
        try:
            return await answer
        except (asyncio.CancelledError, ServerUnavailable) as error:
            is_new = request_state.withdraw()
            asking.cancel()  # the SDK tells the server
            if is_new:
                reason = error.reason if isinstance(error, ServerUnavailable) else ""
                raise RequestNotSent(reason) from None
            if isinstance(error, ServerUnavailable):
                raise
            words = f"The MCP server {self._server_name!r} was told to stop."
            raise MayStillRun(words, answer=request_state.late_answer) from None

    def fail(self, reason: str) -> None:
        """Tell every caller that the session is over."""
        for asking, answer in list(self._answers.items()):
            _fail(answer, ServerUnavailable(reason))
            asking.cancel()

    async def finished(self, *, within: float) -> None:
        """Wait for the tasks, whose results are not needed."""
        if self._answers:
            await asyncio.wait(set(self._answers), timeout=within)

    async def _send(
        self,
        client: Client,
        answer: "asyncio.Future[McpResult]",
        tool_name: str,
        arguments: dict[str, Any],
        report: Report,
        request_state: RequestState,
    ) -> None:
        current_request.set(request_state)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if not answer.done():
                text = shortened(message or "", limit=_REPORT_LENGTH)
                report(Progress(message=text, progress=progress, total=total))

        try:
            result = await client.call_tool(
                tool_name, arguments, read_timeout_seconds=_NO_LIMIT, progress_callback=on_progress
            )
            read = await asyncio.to_thread(read_result, result)  # it may be megabytes
        except MCPError as error:
            _fail(answer, await self._failure_of(error, request_state))
        except ResultRefused as refused:
            _fail(answer, refused)
        except Exception as error:
            logger.debug("An MCP answer is of no use", exc_info=True)
            _fail(answer, ResponseLost(f"The MCP server {self._server_name!r}: {explain(error)}."))
        else:
            if not answer.done():
                answer.set_result(read)

    async def _failure_of(self, error: MCPError, request_state: RequestState) -> Exception:
        """Return what a call fails with whose request the server has answered with an error, or not at all."""
        if request_state.failure:
            return self._lost(request_state)
        if error.code == types.CONNECTION_CLOSED:
            # The session may be ending: then its own reason is the better answer.
            await asyncio.wait({self._ended}, timeout=_LAST_WORDS)
        is_wordless = error.code == types.INTERNAL_ERROR and error_text(error) == _WORDLESS
        status = request_state.status if is_wordless else None
        return failure_of(self._server_name, error, status=status)

    def _lost(self, request_state: RequestState) -> Exception:
        if not request_state.is_sent:
            return ServerUnavailable(request_state.failure)
        return ResponseLost(f"The MCP server {self._server_name!r}: {request_state.failure}.")

    def _forget(self, asking: "asyncio.Task[None]") -> None:
        _fail(self._answers.pop(asking), ServerUnavailable("the question was withdrawn"))
        if not asking.cancelled():
            asking.exception()


def _fail(answer: "asyncio.Future[McpResult]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
