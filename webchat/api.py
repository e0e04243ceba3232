"""The HTTP API under `/api/`: parses, calls one service or selector, answers; the protocol has its names."""

from dataclasses import asdict
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path, re_path
from ninja import NinjaAPI, Swagger
from ninja.params import P, QueryEx

from governance import CancelSource
from turns import selectors, services, wire
from webchat import (
    __version__,
    api_errors,
    api_schemas,
    attachments,
    broadcast,
    exports,
    text_files,
)
from webchat.api_operations import add_operation
from webchat.api_parsing import (
    SEQ,
    JsonParser,
    conversation_uuid,
    turn_uuid,
    user_of,
)
from webchat.authentication import SessionAuth, TokenAuth
from webchat.markdown import with_html
from webchat.operations import attachment_uuid, message_answer, replaced_turn
from webchat.protocol.operation import OPERATIONS
from webchat.translation import for_reader, in_thread

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
EXPORTS = {
    "json": (exports.as_json, "json", "application/json"),
    "markdown": (exports.as_markdown, "md", "text/markdown"),
}
UPLOAD_ERRORS = dict.fromkeys((401, 403, 413, 415, 422, 429), api_schemas.ErrorAnswer)


@api.get(
    "/turns/active",
    response={200: api_schemas.ActiveTurnsAnswer, 401: api_schemas.ErrorAnswer},
    tags=["turns"],
)
async def active_turns(request: HttpRequest) -> JsonResponse:
    """List the turns that are not over, with the tools that run now (V5)."""
    return JsonResponse({"turns": await selectors.active_turns(user=user_of(request))})


@api.get(
    "/turns/{turn_id}", response={200: wire.TurnWithCalls, **api_schemas.ERRORS}, tags=["turns"]
)
async def turn(request: HttpRequest, turn_id: str) -> JsonResponse:
    """Return one turn with its calls."""
    return JsonResponse(
        for_reader(await selectors.get_turn(turn_id=turn_uuid(turn_id), user=user_of(request)))
    )


@api.get(
    "/turns/{turn_id}/events",
    response={200: api_schemas.EventsAnswer, **api_schemas.ERRORS},
    tags=["turns"],
)
async def turn_events(
    request: HttpRequest, turn_id: str, after: QueryEx[int, SEQ] = 0
) -> JsonResponse:
    """Return the events of a turn that come after a number."""
    events, last_seq = await selectors.turn_events(
        turn_id=turn_uuid(turn_id), user=user_of(request), after=after
    )
    return JsonResponse({"events": for_reader(events), "last_seq": last_seq})


@api.get(
    "/turns/{turn_id}/tools/{path:tool_id}/result",
    response={409: api_schemas.ErrorAnswer, **api_schemas.ERRORS},
    openapi_extra={"responses": {200: text_files.DESCRIPTION}},
    tags=["turns"],
)
async def tool_result(
    request: HttpRequest, turn_id: str, tool_id: str, *, download: bool = False
) -> HttpResponse:
    """Return the whole result of a call that has ended, as plain text; with `download=true` as a file."""
    result = await selectors.tool_result(
        turn_id=turn_uuid(turn_id), tool_id=tool_id, user=user_of(request)
    )
    name = f"{result.tool_name}-{tool_id}.txt"
    return text_files.answer(result.text, name=name, is_download=download)


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
async def conversations(
    request: HttpRequest, search: str = "", agent: str = "", offset: QueryEx[int, SEQ] = 0
) -> JsonResponse:
    """List 200 of your conversations, pinned ones first, then the latest; `search` is a part of the title, `agent` answers."""
    found = await selectors.list_conversations(
        user=user_of(request), search=search, agent=agent, offset=offset
    )
    return JsonResponse({"conversations": [summary(conversation) for conversation in found]})


@api.post(
    "/conversations",
    response={201: api_schemas.ConversationAnswer, **api_schemas.ERRORS},
    tags=["conversations"],
)
async def create_conversation(
    request: HttpRequest, body: api_schemas.NewConversationBody | None = None
) -> JsonResponse:
    """Begin a conversation."""
    asked = body or api_schemas.NewConversationBody()
    made = await services.create_conversation(
        user=user_of(request),
        title=asked.title,
        agent=asked.agent,
        conversation_id=asked.conversation_id,
    )
    return JsonResponse(summary(made), status=201)


@api.patch(
    "/conversations/{conversation_id}",
    response={200: api_schemas.ConversationAnswer, **api_schemas.ERRORS},
    tags=["conversations"],
)
async def edit_conversation(
    request: HttpRequest, conversation_id: str, body: api_schemas.EditBody
) -> JsonResponse:
    """Rename a conversation, pin it, or choose which agent answers from now on."""
    edited = await services.edit_conversation(
        conversation_id=conversation_uuid(conversation_id), user=user_of(request), **body.dict()
    )
    return JsonResponse(summary(edited))


@api.get(
    "/conversations/{conversation_id}/export",
    response=api_schemas.ERRORS,
    openapi_extra={"responses": {200: text_files.DESCRIPTION}},
    tags=["conversations"],
)
async def export_conversation(
    request: HttpRequest, conversation_id: str, *, format: Literal["json", "markdown"] = "json"
) -> HttpResponse:
    """Return a conversation of yours as a file: every message, every call with its whole result.

    In JSON, turns that another message has replaced say by which (`replaced_by`); Markdown leaves them out.
    """
    found = await selectors.export(
        conversation_id=conversation_uuid(conversation_id), user=user_of(request)
    )
    render, kind, content_type = EXPORTS[format]
    text = await in_thread(render, found)
    name = f"{found['title'] or 'conversation'}.{kind}"
    return text_files.answer(text, name=name, is_download=True, content_type=content_type)


@api.delete(
    "/conversations/{conversation_id}",
    response={200: api_schemas.DeletionAnswer, **api_schemas.ERRORS},
    tags=["conversations"],
)
async def delete_conversation(request: HttpRequest, conversation_id: str) -> JsonResponse:
    """Delete a conversation: cancel what runs there, hide it at once, and remove what was said and done."""
    deleted = await services.delete_conversation(
        conversation_id=conversation_uuid(conversation_id),
        user=user_of(request),
        source=CancelSource.API,
    )
    await broadcast.notify_deleted(deleted.conversation_ids)
    answer = {"ok": True, "conversation_id": conversation_id, "cancelled": deleted.cancelled}
    return JsonResponse(answer)


@api.post(
    "/conversations/{conversation_id}/messages",
    response={202: api_schemas.MessageAnswer, 409: api_schemas.ErrorAnswer, **api_schemas.ERRORS},
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
        replaces=replaced_turn(body.replaces),
        attachments=[attachment_uuid(written) for written in body.attachments],
    )
    return JsonResponse(message_answer(received), status=202)


@api.get(
    "/conversations/{conversation_id}/messages",
    response={200: wire.Snapshot, **api_schemas.ERRORS},
    tags=["conversations"],
)
async def messages(
    request: HttpRequest, conversation_id: str, before: QueryEx[int | None, SEQ] = None
) -> JsonResponse:
    """Return messages with their calls, shaped like a `snapshot` frame: the latest, or those before a position."""
    snapshot = await selectors.snapshot(
        conversation_id=conversation_uuid(conversation_id), user=user_of(request), before=before
    )
    return JsonResponse(for_reader({**snapshot, "messages": await with_html(snapshot["messages"])}))


@api.get(
    "/conversations/{conversation_id}/history",
    response={200: wire.History, **api_schemas.ERRORS},
    tags=["conversations"],
)
async def history(request: HttpRequest, conversation_id: str) -> JsonResponse:
    """Return what the model reads, always valid (H1), and what was repaired in it."""
    found = await selectors.history(
        conversation_id=conversation_uuid(conversation_id), user=user_of(request)
    )
    return await in_thread(JsonResponse, found)  # with every result at its whole length


@api.post(
    "/attachments",
    response={201: wire.AttachmentContent, **UPLOAD_ERRORS},
    openapi_extra=attachments.UPLOAD,
    tags=["attachments"],
)
async def attach(
    request: HttpRequest, name: QueryEx[str, P(max_length=1_000)] = "file"
) -> JsonResponse:
    """Upload a file, as the bare body of the request; a message can have it then, within a day."""
    attachments.check_body(request)
    block = await services.add_attachment(user=user_of(request), name=name, source=request)
    return JsonResponse(block, status=201)


@api.get(
    "/attachments/{attachment_id}",
    response=api_schemas.ERRORS,
    openapi_extra={"responses": {200: attachments.DESCRIPTION}},
    tags=["attachments"],
)
async def attachment(
    request: HttpRequest, attachment_id: str, *, download: bool = False
) -> HttpResponse:
    """Return a file. Images are shown, unless `download=true`; everything else is saved."""
    file = await selectors.attached_file(
        attachment_id=attachment_uuid(attachment_id), user=user_of(request)
    )
    return attachments.answer(file, is_download=download or not file.is_image)


@api.delete(
    "/attachments/{attachment_id}", response={204: None, **api_schemas.ERRORS}, tags=["attachments"]
)
async def discard_attachment(request: HttpRequest, attachment_id: str) -> HttpResponse:
    """Remove a file that no message has yet."""
    await services.discard_attachment(
        user=user_of(request), attachment_id=attachment_uuid(attachment_id)
    )
    return HttpResponse(status=204)


def summary(conversation: Any) -> dict[str, Any]:
    """Return a conversation as the wire has it."""
    return {
        "conversation_id": str(conversation.id),
        "title": conversation.title,
        "agent": conversation.agent,
        "updated_at": conversation.updated_at,
        "is_active": conversation.is_active,
        "is_pinned": conversation.is_pinned,
        "standing": conversation.standing or None,
        "asked": conversation.asked,
        "tools_running": conversation.tools_running,
        "is_queued": conversation.is_queued,
        "last_seq": conversation.last_seq,
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
