"""Elicitation: shows the questions of a server to a person. Each question belongs to a call, and is handled like an
approval of that call.
"""

import logging
from collections.abc import Callable

from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from governance.core.calls import Progress
from governance.core.forms import FormAnswer, FormRefused, read_form
from governance.mcp.request_state import CallState, current_request

logger = logging.getLogger(__name__)

_REASON = "django-turnkeeper/reason"  # the key in `_meta` that says why no person was asked
_NO_LINKS = "it wants to open a link, which is not supported here"
_NO_CALL = "it asked outside a call, or while several calls ran and without saying for which"


class Elicitation:
    """The callback through which the SDK passes on the questions of one session.

    `sole_call` returns the only call that can have asked the question, or None if there may be several.
    """

    def __init__(self, server: str, *, sole_call: Callable[[], CallState | None]) -> None:
        self._server = server
        self._sole_call = sole_call
        # Each reason is logged once, because a server may ask endlessly.
        self._noted: set[str] = set()

    async def __call__(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        """Show the question to the person for whom the call runs. Decline it with a reason if it may not be shown."""
        # The SDK runs this in the context of the call if the transport reports to which call the question belongs.
        call = current_request.get() or self._sole_call()
        try:
            answer = await _ask(call, params)
        except FormRefused as refused:
            self._note(call, refused.reason)
            return ElicitResult.model_validate(
                {"action": "decline", "_meta": {_REASON: refused.reason}}
            )
        if answer.action != "accept":
            return ElicitResult(action=answer.action)
        return ElicitResult(action="accept", content=dict(answer.answers))

    def _note(self, call: CallState | None, reason: str) -> None:
        if reason not in self._noted:
            self._noted.add(reason)
            facts = {"server": self._server, "reason": reason}
            logger.info("A question of an MCP server was declined", extra=facts)
        if call is not None:
            words = f"A question of the MCP server {self._server!r} was declined: {reason}."
            call.report(Progress(message=words))


async def _ask(call: CallState | None, params: ElicitRequestParams) -> FormAnswer:
    if call is None or call.is_over:
        raise FormRefused(_NO_CALL)
    if not isinstance(params, ElicitRequestFormParams):
        raise FormRefused(_NO_LINKS)
    return await call.ask(read_form(params.message, params.requested_schema))
