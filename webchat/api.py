"""The HTTP API under `/api/`: parses, calls one service or selector, answers; the protocol has its names."""

from dataclasses import asdict
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.urls import include, path, re_path
from django.utils.translation import gettext as _
from ninja import NinjaAPI, Swagger
from ninja.params import QueryEx

from governance import CancelSource
from turns import selectors, services, wire
from turns.exceptions import ToolCallNotFound, TurnNotFound, TurnsError
from turns.services import OpOutcome
from webchat import __version__, api_errors, api_schemas
from webchat.api_parsing import SEQ, JsonParser, conversation_uuid, turn_uuid, user_of
from webchat.authentication import SessionAuth, TokenAuth
from webchat.exceptions import Refused
from webchat.markdown import with_html

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


@api.post(
    "/turns/{turn_id}/abort", response={200: api_schemas.CancelAnswer, **ERRORS}, tags=["turns"]
)
async def cancel_turn(
    request: HttpRequest, turn_id: str, body: api_schemas.CancelTurnBody | None = None
) -> JsonResponse:
    """Cancel a turn; answered as soon as the request is stored (C2)."""
    asked = body or api_schemas.CancelTurnBody()
    receipt = await services.request_cancel(
        turn_id=turn_uuid(turn_id),
        user=user_of(request),
        source=CancelSource.API,
        note=asked.reason,
        mode=asked.mode,
        op_id=asked.op_id,
    )
    check(receipt.outcome, missing=TurnNotFound())
    return JsonResponse({"ok": True, "turn_id": str(receipt.turn_id), "status": receipt.status})


@api.post(
    "/turns/{turn_id}/abort-tool/{tool_id}",
    response={200: api_schemas.CancelToolAnswer, **ERRORS},
    tags=["turns"],
)
async def cancel_tool(
    request: HttpRequest, turn_id: str, tool_id: str, body: api_schemas.CancelBody | None = None
) -> JsonResponse:
    """Cancel one tool call; the turn goes on (C3)."""
    asked = body or api_schemas.CancelBody()
    receipt = await services.request_tool_cancel(
        turn_id=turn_uuid(turn_id),
        tool_id=tool_id,
        user=user_of(request),
        source=CancelSource.API,
        note=asked.reason,
        op_id=asked.op_id,
    )
    check(receipt.outcome, missing=ToolCallNotFound())
    return JsonResponse(
        {"ok": True, "turn_id": str(receipt.turn_id), "tool_id": tool_id, "status": receipt.status}
    )


@api.post(
    "/turns/{turn_id}/tools/{tool_id}/deadline",
    response={200: api_schemas.DeadlineAnswer, **ERRORS},
    tags=["turns"],
)
async def set_deadline(
    request: HttpRequest, turn_id: str, tool_id: str, body: api_schemas.DeadlineBody
) -> JsonResponse:
    """Give a running call another limit, up to the administrator's ceiling (T9)."""
    receipt = await services.set_deadline(
        turn_id=turn_uuid(turn_id),
        tool_id=tool_id,
        user=user_of(request),
        timeout_ms=body.timeout_ms,
        extend_ms=body.extend_ms,
        op_id=body.op_id,
    )
    check(receipt.outcome, missing=ToolCallNotFound())
    return JsonResponse(
        {"ok": True, "timeout_ms": receipt.timeout_ms, "timeout_source": receipt.timeout_source}
    )


@api.get(
    "/agents",
    response={200: api_schemas.AgentsAnswer, 401: api_schemas.ErrorAnswer},
    tags=["conversations"],
)
async def agents(request: HttpRequest) -> JsonResponse:
    """List the agents that a conversation may begin with, the default one first."""
    found = await selectors.list_agents(user=user_of(request))
    return JsonResponse({"agents": [asdict(agent) for agent in found]})


@api.post(
    "/turns/{turn_id}/tools/{tool_id}/decision",
    response={200: api_schemas.DecisionAnswer, 409: api_schemas.DecidedAnswer, **ERRORS},
    tags=["turns"],
)
async def decide_tool(
    request: HttpRequest, turn_id: str, tool_id: str, body: api_schemas.DecisionBody
) -> JsonResponse:
    """Approve or deny a call that waits for a person; it is decided once (D4)."""
    receipt = await services.decide_tool(
        turn_id=turn_uuid(turn_id),
        tool_id=tool_id,
        user=user_of(request),
        decision=body.decision,
        remember=body.remember,
        reason=body.reason,
        op_id=body.op_id,
    )
    if receipt.outcome is OpOutcome.ALREADY_FINISHED:
        return api_errors.decided(receipt.status)
    check(receipt.outcome, missing=ToolCallNotFound())
    return JsonResponse({"ok": True, "status": receipt.status})


@api.post(
    "/turns/{turn_id}/continue",
    response={202: api_schemas.MessageAnswer, 409: api_schemas.ErrorAnswer, **ERRORS},
    tags=["turns"],
)
async def continue_turn(request: HttpRequest, turn_id: str) -> JsonResponse:
    """Let the agent go on after its last turn, which was interrupted: the new turn, the same one if asked again (H4)."""
    received = await services.continue_turn(turn_id=turn_uuid(turn_id), user=user_of(request))
    return accepted(received)


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
    return accepted(received)


@api.post(
    "/conversations/{conversation_id}/resume",
    response={200: api_schemas.ResumeAnswer, **ERRORS},
    tags=["conversations"],
)
async def resume_conversation(request: HttpRequest, conversation_id: str) -> JsonResponse:
    """Let a parked conversation go on; `resumed` is false where it was not parked (H4)."""
    found = conversation_uuid(conversation_id)
    resumed = await services.resume_conversation(conversation_id=found, user=user_of(request))
    return JsonResponse({"ok": True, "conversation_id": str(found), "resumed": resumed})


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


def accepted(received: services.Received) -> JsonResponse:
    """Answer a message: the turn that it began, or ended."""
    answer = {
        "turn_id": str(received.turn_id),
        "conversation_id": str(received.conversation_id),
        "cancelled": received.cancelled,
    }
    return JsonResponse(answer, status=202)


def check(outcome: OpOutcome, *, missing: TurnsError) -> None:
    """Go on only if the request was accepted."""
    if outcome is OpOutcome.DENIED:
        raise Refused(403, "denied", _("You may see this turn, but not cancel or change it."))
    if outcome is OpOutcome.NOT_CANCELLABLE:
        raise Refused(
            409,
            "not_cancellable",
            _("This tool call cannot be cancelled; cancel the turn instead."),
        )
    if outcome is not OpOutcome.ACCEPTED:
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


_views, _app_name, _namespace = api.urls
urlpatterns = [
    path("", include((api_errors.with_json_errors(_views), _app_name), namespace=_namespace)),
    re_path(r"^", unknown),
]
