"""The pending calls of one session. Each runs in a separate task, and its caller waits for a future."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pydantic_core
from mcp import Client, InputRequiredRoundsExceededError, types
from mcp.shared.exceptions import MCPError

from governance.core.calls import Progress
from governance.core.containment import outside
from governance.core.exceptions import MayStillRun, ToolFailed
from governance.core.excerpts import shortened
from governance.core.forms import AskForm
from governance.core.invokers.worker_errors import ResultRefused
from governance.mcp.error_messages import explain
from governance.mcp.errors import RequestNotSent, ResponseLost, ServerUnavailable
from governance.mcp.request_state import CallState, Report, RequestState, current_request
from governance.mcp.results import McpResult, error_text, failure_of, read_result
from governance.threads import run_in_thread

logger = logging.getLogger(__name__)

_NO_LIMIT = 1e9  # seconds; effectively unlimited, because the executor limits the time
_REPORT_LENGTH = 500
_LAST_WORDS = 1.0
_WORDLESS = "Server returned an error response"  # the SDK's message for a response that has only an HTTP status


class PendingCalls:
    """Sends the calls of one session to its server. A cancel releases the caller of a call immediately.

    `ended` is the future that resolves with a clause when the session is over.
    """

    def __init__(self, server_name: str, *, ended: "asyncio.Future[str]") -> None:
        self._server_name = server_name
        self._ended = ended
        self._answers: dict[asyncio.Task[None], asyncio.Future[McpResult]] = {}
        self._states: set[CallState] = set()  # the calls on which the server may still be working

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def running(self) -> "set[asyncio.Task[None]]":
        """The tasks that are waiting for responses."""
        return set(self._answers)

    @property
    def sole(self) -> CallState | None:
        """The only call on which the server can be working, or None if there are several or none."""
        return next(iter(self._states)) if len(self._states) == 1 else None

    @property
    def has_given_up(self) -> bool:
        """Whether the server may still be working on an abandoned call."""
        return len(self._states) > len(self._answers)

    async def send(
        self,
        client: Client,
        tool_name: str,
        arguments: Mapping[str, Any],
        *,
        report: Report,
        ask: AskForm,
    ) -> McpResult:
        """Call a tool and return its result. If the caller is cancelled, notify the server without waiting for it.

        Raises:
            MayStillRun: the call was cancelled after it was sent, so the tool may still be running.
            RequestNotSent: the call was cancelled, or the session ended, before it was sent.
            ServerUnavailable: the session ended before the response arrived.
            ResponseLost: the response is invalid, or is an error that leaves open whether the tool ran.
            ResultRefused: the result contains numbers that JSON does not have.
            ToolFailed: the server refused the call, or the arguments cannot be written as JSON.
        """
        try:
            # An error in the SDK's writer would end the session, and with it the calls of other people.
            pydantic_core.to_json(arguments)
        except ValueError:
            raise ToolFailed("The arguments cannot be written as JSON.") from None
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[McpResult] = loop.create_future()
        request_state = CallState(ask=ask, report=report)
        self._states.add(request_state)
        asking = loop.create_task(
            self._send(client, answer, tool_name, dict(arguments), report, request_state),
            name=f"asking MCP server {self._server_name} for {tool_name}",
            context=outside(),
        )
        self._answers[asking] = answer
        asking.add_done_callback(self._forget)
        is_given_up = False
        try:
            return await answer
        except (asyncio.CancelledError, ServerUnavailable) as error:
            is_new = request_state.withdraw()
            asking.cancel()  # the SDK notifies the server
            if not is_new and isinstance(error, asyncio.CancelledError):
                is_given_up = True
                request_state.late_answer.add_done_callback(
                    lambda _: self._forget_state(request_state)
                )
            if is_new:
                reason = error.reason if isinstance(error, ServerUnavailable) else ""
                raise RequestNotSent(reason) from None
            if isinstance(error, ServerUnavailable):
                raise
            words = f"The MCP server {self._server_name!r} was asked to stop."
            raise MayStillRun(words, answer=request_state.late_answer) from None
        finally:
            if not is_given_up:
                self._forget_state(request_state)

    def fail(self, reason: str) -> None:
        """Raise `ServerUnavailable` in all callers, because the session is over."""
        for asking, answer in list(self._answers.items()):
            _fail(answer, ServerUnavailable(reason))
            asking.cancel()

    async def finished(self, *, within: float) -> None:
        """Wait up to `within` seconds for the tasks to end. Their results are not needed."""
        if self._answers:
            await asyncio.wait(set(self._answers), timeout=within)

    async def _send(
        self,
        client: Client,
        answer: "asyncio.Future[McpResult]",
        tool_name: str,
        arguments: dict[str, Any],
        report: Report,
        request_state: CallState,
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
            self._forget_state(request_state)  # a call with a result asks no more questions
            read = await run_in_thread(read_result, result)  # the result may be very large
        except MCPError as error:
            _fail(answer, await self._failure_of(error, request_state))
        except ResultRefused as refused:
            _fail(answer, refused)
        except InputRequiredRoundsExceededError:
            words = f"The MCP server {self._server_name!r} asked for input too many times."
            _fail(answer, ResponseLost(words))
        except Exception as error:
            logger.debug("An MCP answer is of no use", exc_info=True)
            _fail(answer, ResponseLost(f"The MCP server {self._server_name!r}: {explain(error)}."))
        else:
            if not answer.done():
                answer.set_result(read)

    async def _failure_of(self, error: MCPError, request_state: RequestState) -> Exception:
        """Return the exception for a call to which the server responded with an error, or not at all."""
        if request_state.failure:
            return self._lost(request_state)
        if error.code == types.CONNECTION_CLOSED:
            # If the session is ending, `fail` reports the reason for that, which explains more than this error.
            await asyncio.wait({self._ended}, timeout=_LAST_WORDS)
        is_wordless = error.code == types.INTERNAL_ERROR and error_text(error) == _WORDLESS
        status = request_state.status if is_wordless else None
        return failure_of(self._server_name, error, status=status)

    def _lost(self, request_state: RequestState) -> Exception:
        if not request_state.is_sent:
            return ServerUnavailable(request_state.failure)
        return ResponseLost(f"The MCP server {self._server_name!r}: {request_state.failure}.")

    def _forget_state(self, state: CallState) -> None:
        state.is_over = True
        self._states.discard(state)

    def _forget(self, asking: "asyncio.Task[None]") -> None:
        _fail(self._answers.pop(asking), ServerUnavailable("the question was withdrawn"))
        if not asking.cancelled():
            asking.exception()


def _fail(answer: "asyncio.Future[McpResult]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
