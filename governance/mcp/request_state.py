"""Whether a request has left this process: one that was withdrawn before it did was never started (C13)."""

import asyncio
from contextvars import ContextVar
from typing import Any


class RequestState:
    """One request on its way out: it is sent or withdrawn, whichever is first, and never both.

    `late_answer` is resolved with the result that comes after it was given up, and cancelled once none can come.
    """

    def __init__(self) -> None:
        self._is_sent = False
        self._is_withdrawn = False
        self.status: int | None = None  # of an HTTP answer that is an error
        self.failure = ""  # why there is no answer, as a clause
        self.late_answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def is_sent(self) -> bool:
        """Whether the server may know of it."""
        return self._is_sent

    @property
    def is_withdrawn(self) -> bool:
        """Whether it was withdrawn before the server knew of it."""
        return self._is_withdrawn

    def send(self) -> bool:
        """Count it as sent from now on. Return False if it was withdrawn: then it must not go out."""
        self._is_sent = not self._is_withdrawn
        return self._is_sent

    def withdraw(self) -> bool:
        """Keep it from being sent. Return False if it is too late."""
        self._is_withdrawn = not self._is_sent
        return self._is_withdrawn


RequestStates = dict[Any, RequestState]  # of one connection, by the id of the request

current_request: ContextVar[RequestState | None] = ContextVar(
    "current_request", default=None
)  # by the running task
