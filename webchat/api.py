"""The HTTP API under `/api/`: parses, calls one service or selector, answers; the protocol has its names."""

from dataclasses import asdict
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path, re_path
from django.utils.translation import gettext as _
from ninja import NinjaAPI, Path, Schema, Swagger
from ninja.params import QueryEx
from pydantic import ValidationError, create_model

from governance import CancelSource
from turns import selectors, services, wire
from turns.exceptions import ToolCallNotFound, TurnNotFound, TurnsError
from turns.services import OpOutcome
from webchat import __version__, api_errors, api_schemas
from webchat.api_parsing import SEQ, JsonParser, conversation_uuid, turn_uuid, user_of
from webchat.authentication import SessionAuth, TokenAuth
from webchat.exceptions import Refused
from webchat.markdown import with_html
from webchat.operations import message_answer, with_ids
from webchat.protocol.operation import OPERATIONS, Operation, Requester

api = NinjaAPI(
    title="Turnkeeper",
    version=__version__,
    description="Watch, time out and cancel what an agent does. Errors are `{error, code}`.",
    urls_namespace="webchat:api",
    auth=[TokenAuth(), SessionAuth()],
    parser=JsonParser(),
    # No badge of a validator elsewhere: the page asks nobody but this server.
    docs=Swagger({"validatorUrl": None, "persistAuthorization": False}),
)
api_errors.install(api)
ERRORS = dict.fromkeys((401, 403, 404, 422, 429), api_schemas.ErrorAnswer)


@api.get(
    "/turns/active",
    response={200: api_schemas.ActiveTurnsAnswer, 401: api_schemas.ErrorAnswer},
    tags=["turns"],
)
async def active_turns(request: HttpRequest) -> JsonResponse:
    """List the turns that are not over, with the tools that run now (V5)."""
    return JsonResponse({"turns": await selectors.active_turns(user=user_of(request))})


@api.get("/turns/{turn_id}", response={200: wire.TurnWithCalls, **ERRORS}, tags=["turns"])
async def turn(request: HttpRequest, turn_id: str) -> JsonResponse:
    """Return one turn with its calls."""
    return JsonResponse(await selectors.get_turn(turn_id=turn_uuid(turn_id), user=user_of(request)))


@api.get(
    "/turns/{turn_id}/events", response={200: api_schemas.EventsAnswer, **ERRORS}, tags=["turns"]
)
async def turn_events(
    request: HttpRequest, turn_id: str, after: QueryEx[int, SEQ] = 0
) -> JsonResponse:
    """Return the events of a turn that come after a number."""
    events, last_seq = await selectors.turn_events(
        turn_id=turn_uuid(turn_id), user=user_of(request), after=after
    )
    return JsonResponse({"events": events, "last_seq": last_seq})


@api.get(
    "/agents",
    response={200: api_schemas.AgentsAnswer, 401: api_schemas.ErrorAnswer},
    tags=["conversations"],
)
async def agents(request: HttpRequest) -> JsonResponse:
    """List the agents that a conversation may begin with, the default one first."""
    found = await selectors.list_agents(user=user_of(request))
    return JsonResponse({"agents": [asdict(agent) for agent in found]})


@api.get(
    "/conversations",
    response={200: api_schemas.ConversationsAnswer, 401: api_schemas.ErrorAnswer},
    tags=["conversations"],
)
async def conversations(request: HttpRequest) -> JsonResponse:
    """List your conversations, the latest first."""
    found = await selectors.list_conversations(user=user_of(request))
    return JsonResponse({"conversations": [summary(conversation) for conversation in found]})


@api.post(
    "/conversations",
    response={201: api_schemas.ConversationAnswer, **ERRORS},
    tags=["conversations"],
)
async def create_conversation(
    request: HttpRequest, body: api_schemas.NewConversationBody | None = None
) -> JsonResponse:
    """Begin a conversation."""
    asked = body or api_schemas.NewConversationBody()
    made = await services.create_conversation(
        user=user_of(request), title=asked.title, agent=asked.agent
    )
    return JsonResponse(summary(made), status=201)


@api.post(
    "/conversations/{conversation_id}/messages",
    response={202: api_schemas.MessageAnswer, 409: api_schemas.ErrorAnswer, **ERRORS},
    tags=["conversations"],
)
async def send_message(
    request: HttpRequest, conversation_id: str, body: api_schemas.NewMessageBody
) -> JsonResponse:
    """Say something: begins a turn, or ends one if it is a cancel word (C6)."""
    received = await services.receive_message(
        conversation_id=conversation_uuid(conversation_id),
        user=user_of(request),
        text=body.text,
        client_id=body.client_id,
    )
    return JsonResponse(message_answer(received), status=202)


@api.get(
    "/conversations/{conversation_id}/messages",
    response={200: wire.Snapshot, **ERRORS},
    tags=["conversations"],
)
async def messages(
    request: HttpRequest, conversation_id: str, before: QueryEx[int | None, SEQ] = None
) -> JsonResponse:
    """Return messages with their calls, shaped like a `snapshot` frame: the latest, or those before a position."""
    snapshot = await selectors.snapshot(
        conversation_id=conversation_uuid(conversation_id), user=user_of(request), before=before
    )
    return JsonResponse({**snapshot, "messages": await with_html(snapshot["messages"])})


@api.get(
    "/conversations/{conversation_id}/history",
    response={200: wire.History, **ERRORS},
    tags=["conversations"],
)
async def history(request: HttpRequest, conversation_id: str) -> JsonResponse:
    """Return what the model reads, always valid (H1), and what was repaired in it."""
    found = await selectors.history(
        conversation_id=conversation_uuid(conversation_id), user=user_of(request)
    )
    return JsonResponse(found)


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
        if is_late and operation.answers.get(409) is api_schemas.DecidedAnswer:
            return api_errors.decided(result.answer["status"])
        check(result.outcome, missing=ToolCallNotFound() if "tool_id" in fields else TurnNotFound())
        return JsonResponse(result.answer, status=status)

    endpoint.__name__, endpoint.__doc__ = operation.name, operation.__doc__
    body = operation | None if _may_be_empty(operation) else operation
    ids: Any = Path[path_model]  # type: ignore[misc, valid-type]  # known only when it runs
    endpoint.__annotations__ |= {"ids": ids, "body": body}
    endpoint.__defaults__ = (None,) if _may_be_empty(operation) else None
    responses = {**operation.answers, **ERRORS}
    tag = operation.path.split("/")[1]
    target.post(operation.path, response=responses, tags=[tag])(endpoint)


def _may_be_empty(operation: type[Operation]) -> bool:
    """Whether a request may leave out its body."""
    try:
        operation()
    except ValidationError:
        return False
    return True


def check(outcome: str, *, missing: TurnsError) -> None:
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


def summary(conversation: Any) -> dict[str, Any]:
    """Return a conversation as the wire has it."""
    return {
        "conversation_id": str(conversation.id),
        "title": conversation.title,
        "agent": conversation.agent,
        "updated_at": conversation.updated_at,
        "is_active": conversation.is_active,
        "standing": conversation.standing or None,
        "asked": conversation.asked,
    }


async def unknown(request: HttpRequest, **_path: Any) -> JsonResponse:
    """Answer an address below `/api/` that is not there."""
    return api_errors.not_found()


for _operation in OPERATIONS.values():
    add_operation(api, _operation)
_views, _app_name, _namespace = api.urls
urlpatterns = [
    path("", include((api_errors.with_json_errors(_views), _app_name), namespace=_namespace)),
    re_path(r"^", unknown),
]
