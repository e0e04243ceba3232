"""Explains why an MCP server cannot be used, in clauses that are safe to show. They never contain text from a library
or from the server.
"""

import errno
from collections.abc import Iterator

import httpx2
from mcp.shared.exceptions import MCPError
from mcp.types import REQUEST_TIMEOUT
from pydantic import ValidationError

from governance.mcp.errors import ServerUnavailable

_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (httpx2.ConnectTimeout, "it did not accept a connection in time"),
    (httpx2.ConnectError, "it cannot be reached"),
    (httpx2.TimeoutException, "it did not answer in time"),
    (httpx2.HTTPError, "the connection broke"),
    (httpx2.InvalidURL, "it redirects to an address that is not valid"),
    (ValidationError, "it does not follow the protocol"),
    (TimeoutError, "it did not answer in time"),
)


def explain(error: BaseException) -> str:
    """Return a clause for the first known cause in `error`, which may be a group of exceptions."""
    causes = list(_leaves(error))
    for cause in causes:
        if isinstance(cause, ServerUnavailable):
            return cause.reason
    for cause in causes:
        if (reason := _reason(cause)) is not None:
            return reason
    return "it failed in an unexpected way; the details are in the log"


def status_clause(status: int) -> str:
    """Return the clause for a response that has only an HTTP status."""
    return f"it answered {status}" + (" (check its headers)" if status in {401, 403} else "")


def _reason(error: BaseException) -> str | None:
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    if isinstance(error, MCPError):
        if error.code == REQUEST_TIMEOUT:
            return "it did not answer in time"
        return f"it refused the connection (error {error.code})"
    if isinstance(error, RuntimeError):  # the SDK raises it if no protocol version fits
        return "it speaks no version of the protocol that is known here"
    if isinstance(error, OSError):
        return f"the connection broke ({errno.errorcode.get(error.errno or 0, 'OS error')})"
    return None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
