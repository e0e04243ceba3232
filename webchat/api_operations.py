"""The endpoints of the API for what a client may also ask for by a frame; `operations` declares them."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext as _
from ninja import NinjaAPI, Path, Schema
from pydantic import ValidationError, create_model

from governance import CancelSource
from turns.exceptions import ToolCallNotFound, TurnNotFound, TurnsError
from turns.services import OpOutcome
from webchat import api_errors
from webchat.api_parsing import user_of
from webchat.api_schemas import ERRORS, DecidedAnswer
from webchat.exceptions import Refused
from webchat.operations import with_ids
from webchat.protocol.operation import Operation, Requester


def add_operation(target: NinjaAPI, operation: type[Operation]) -> None:
    """Add the endpoint of an operation that clients may also ask for by a frame."""
    fields: dict[str, Any] = dict.fromkeys(operation.path_ids(), (str, ...))
    path_model = create_model(f"{operation.__name__}Path", __base__=Schema, **fields)
    status, *_others = operation.answers

    async def endpoint(request: HttpRequest, ids: Any, body: Any = None) -> HttpResponse:
        requester = Requester(user=user_of(request), source=CancelSource.API)
        asked = operation() if body is None else body
        result = await asked.perform(with_ids(requester, **ids.model_dump()))
        is_late = result.outcome == OpOutcome.ALREADY_FINISHED
        if is_late and operation.answers.get(409) is DecidedAnswer:
            return api_errors.decided(result.answer["status"])
        _check(
            result.outcome, missing=ToolCallNotFound() if "tool_id" in fields else TurnNotFound()
        )
        return JsonResponse(result.answer, status=status)

    _sign(endpoint, operation, path_model)
    responses = {**operation.answers, **ERRORS}
    tag = operation.path.split("/")[1]
    target.post(
        operation.path,
        response=responses,
        tags=[tag],
        operation_id=f"webchat_api_{operation.name}",  # generated clients name their functions so
    )(endpoint)


def _sign(endpoint: Any, operation: type[Operation], path_model: type[Schema]) -> None:
    """Give an endpoint the name and the annotations from which its description is made."""
    may_be_empty = _may_be_empty(operation)
    ids: Any = Path[path_model]  # type: ignore[misc, valid-type]  # known only when it runs
    endpoint.__name__, endpoint.__doc__ = operation.name, operation.__doc__
    endpoint.__annotations__ |= {
        "ids": ids,
        "body": operation | None if may_be_empty else operation,
    }
    endpoint.__defaults__ = (None,) if may_be_empty else None


def _may_be_empty(operation: type[Operation]) -> bool:
    """Whether a request may leave out its body."""
    try:
        operation()
    except ValidationError:
        return False
    return True


def _check(outcome: str, *, missing: TurnsError) -> None:
    """Go on only if the request was accepted."""
    if outcome == OpOutcome.DENIED:
        raise Refused(403, "denied", _("You may see this turn, but not cancel or change it."))
    if outcome == OpOutcome.NOT_CANCELLABLE:
        raise Refused(
            409,
            "not_cancellable",
            _("This tool call cannot be cancelled; cancel the turn instead."),
        )
    if outcome != OpOutcome.ACCEPTED:
        raise missing
