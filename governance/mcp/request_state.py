"""Records whether a request was sent. A call that was withdrawn before it was sent never started (C13)."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from governance.core.calls import Progress
from governance.core.forms import AskForm

Report = Callable[[Progress], None]


class RequestState:
    """An outgoing request, which is either sent or withdrawn, whichever happens first.

    `late_answer` resolves with a result that arrives after the caller has left. It is cancelled once no result can
    arrive any more.
    """

    def __init__(self) -> None:
        self._is_sent = False
        self._is_withdrawn = False
        self.status: int | None = None  # the status of an HTTP error response
        self.failure = ""  # a clause that says why there is no response
        self.late_answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def is_sent(self) -> bool:
        """Whether the server may know of the request."""
        return self._is_sent

    @property
    def is_withdrawn(self) -> bool:
        """Whether the request was withdrawn before the server knew of it."""
        return self._is_withdrawn

    def send(self) -> bool:
        """Mark the request as sent. Return False if it was withdrawn and must not be sent."""
        self._is_sent = not self._is_withdrawn
        return self._is_sent

    def withdraw(self) -> bool:
        """Keep the request from being sent. Return False if it is too late."""
        self._is_withdrawn = not self._is_sent
        return self._is_withdrawn


class CallState(RequestState):
    """A pending tool call, which may need several requests. `ask` shows a form to the person for whom the call runs."""

    def __init__(self, *, ask: AskForm, report: Report) -> None:
        super().__init__()
        self.is_over = False  # whether the server has responded, or no longer can
        self.ask = ask
        self.report = report


RequestStates = dict[Any, RequestState]  # the requests of one connection, by their ids

# The call for which the current task sends requests.
current_request: ContextVar[CallState | None] = ContextVar("current_request", default=None)
