"""The HTTP API under `/api/`. Start reading here.

Each endpoint parses its request, calls one service or selector, and returns a response.
"""

from dataclasses import asdict
from typing import Any, Literal, cast
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path, re_path
from django.utils.http import content_disposition_header
from django.utils.text import get_valid_filename
from django.utils.translation import gettext as _
from ninja import NinjaAPI, Path, Schema, Swagger
from ninja.params import P, QueryEx
from ninja.parser import Parser
from ninja.security.base import AuthBase
from ninja.utils import check_csrf
from pydantic import ValidationError, create_model

from governance import CancelSource
from governance.db import run_in_query_thread
from turns import selectors, services, wire
from turns.conf import app_settings as turn_settings
from turns.exceptions import ToolCallNotFound, TurnNotFound, TurnsError
from turns.services import OpOutcome
from webchat import (
    __version__,
    api_errors,
    api_schemas,
    api_tokens,
    broadcast,
    exports,
)
from webchat.decorators import open_view
from webchat.exceptions import Refused, SignedOut
from webchat.markdown import with_html
from webchat.operations import attachment_uuid, message_answer, replaced_turn, uuid_of, with_ids
from webchat.protocol.operation import OPERATIONS, Operation, Requester
from webchat.rate_limits import check_request_rate
from webchat.translation import for_reader, in_thread

# In a query thread, because the CSRF token may be in the session, and the session may be in the database.
_check_csrf = run_in_query_thread(check_csrf)

SEQ = P(ge=0, le=2**62)
DESCRIPTION = {
    "description": "The text",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
_LONGEST_NAME = 100
EXPORTS = {
    "json": (exports.as_json, "json", "application/json"),
    "markdown": (exports.as_markdown, "md", "text/markdown"),
}
EXPORTED = {
    **DESCRIPTION,
    "content": {content_type: {"schema": {}} for _render, _kind, content_type in EXPORTS.values()},
}
FILE_TYPE = "application/octet-stream"  # for uploads, because a form on another site cannot send it
_BINARY = {FILE_TYPE: {"schema": {"type": "string", "format": "binary"}}}
UPLOAD = {"requestBody": {"required": True, "content": _BINARY}}
_STORED_TYPES = ("image/jpeg", "image/png", "image/webp", "application/pdf", "text/plain")
FILE = {"description": "The file", "content": dict.fromkeys(_STORED_TYPES, _BINARY[FILE_TYPE])}
UPLOAD_ERRORS = dict.fromkeys((401, 403, 413, 415, 422, 429), api_schemas.ErrorAnswer)


class JsonParser(Parser):
    """A parser that accepts only JSON bodies, because a form on another site cannot send one."""

    def parse_body(self, request: HttpRequest) -> Any:
        if request.content_type != "application/json":
            raise Refused(415, "unsupported_media_type", _("Send application/json."))
        return super().parse_body(request)


class TokenAuth(AuthBase):
    """Authenticates programs by the header `Authorization: Bearer <token>`."""

    openapi_type = "http"
    openapi_scheme = "bearer"

    async def __call__(self, request: HttpRequest) -> AbstractBaseUser | None:
        """Return the user of the token, or None without one. An invalid token is refused even if the session is valid."""
        token = api_tokens.bearer_of(request.headers.get("Authorization", ""))
        if token is None:
            return None
        user = await api_tokens.find_user_async(token)
        if user is None:
            raise SignedOut("invalid_token", _("This token is unknown or was revoked."))
        check_request_rate(request, user)
        return user


class SessionAuth(AuthBase):
    """Authenticates pages of this site by Django's session cookie. Unsafe methods also need the CSRF token."""

    openapi_type = "apiKey"
    openapi_in = "cookie"
    openapi_name = "sessionid"
    csrf = True

    async def __call__(self, request: HttpRequest) -> AbstractBaseUser | None:
        user = await request.auser()
        if not user.is_authenticated or not user.is_active:
            return None
        if request.content_type == "multipart/form-data":
            # The CSRF check would read the whole form, including its files, and leave no body for the view.
            sentence = _("Forms are not accepted here. /api/docs shows what to send.")
            raise Refused(415, "unsupported_media_type", sentence)
        if await _check_csrf(request) is not None:
            sentence = _("The CSRF token is missing or wrong. Reload the page and try again.")
            raise Refused(403, "csrf_failed", sentence)
        check_request_rate(request, cast(AbstractBaseUser, user))
        return cast(AbstractBaseUser, user)


api = NinjaAPI(
    title="Turnkeeper",
    version=__version__,
    description="Watch, time out and cancel what an agent does. Errors are `{error, code}`.",
    urls_namespace="webchat:api",
    auth=[TokenAuth(), SessionAuth()],
    parser=JsonParser(),
    # Without the validator badge, the page loads nothing from other servers.
    docs=Swagger({"validatorUrl": None, "persistAuthorization": False}),
)
api_errors.install(api)


@api.get(
    "/turns/active",
    response={200: api_schemas.ActiveTurnsAnswer, 401: api_schemas.ErrorAnswer},
    tags=["turns"],
)
async def active_turns(request: HttpRequest) -> JsonResponse:
    """List the turns that have not ended, with their running tools (V5)."""
    return JsonResponse({"turns": await selectors.active_turns(user=user_of(request))})


@api.get(
    "/turns/{turn_id}", response={200: wire.TurnWithCalls, **api_schemas.ERRORS}, tags=["turns"]
)
async def turn(request: HttpRequest, turn_id: str) -> JsonResponse:
    """Return a turn with its calls."""
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
    """Return the events of a turn that follow the event number `after`."""
    events, last_seq = await selectors.turn_events(
        turn_id=turn_uuid(turn_id), user=user_of(request), after=after
    )
    return JsonResponse({"events": for_reader(events), "last_seq": last_seq})


@api.get(
    "/turns/{turn_id}/tools/{path:tool_id}/result",
    response={409: api_schemas.ErrorAnswer, **api_schemas.ERRORS},
    openapi_extra={"responses": {200: DESCRIPTION}},
    tags=["turns"],
)
async def tool_result(
    request: HttpRequest, turn_id: str, tool_id: str, *, download: bool = False
) -> HttpResponse:
    """Return the whole result of a finished call as plain text, or as a file with `download=true`."""
    result = await selectors.tool_result(
        turn_id=turn_uuid(turn_id), tool_id=tool_id, user=user_of(request)
    )
    name = _file_name(f"{result.tool_name}-{tool_id}.txt")
    return _file(result.text, name=name, is_download=download, content_type="text/plain")


@api.get(
    "/agents",
    response={200: api_schemas.AgentsAnswer, 401: api_schemas.ErrorAnswer},
    tags=["conversations"],
)
async def agents(request: HttpRequest) -> JsonResponse:
    """List the agents that you can choose for a conversation, the default one first."""
    rows = await selectors.list_agents(user=user_of(request))
    return JsonResponse({"agents": [asdict(agent) for agent in rows]})


@api.get(
    "/conversations",
    response={200: api_schemas.ConversationsAnswer, 401: api_schemas.ErrorAnswer},
    tags=["conversations"],
)
async def conversations(
    request: HttpRequest, search: str = "", agent: str = "", offset: QueryEx[int, SEQ] = 0
) -> JsonResponse:
    """List up to 200 of your conversations: the pinned ones, then the others, newest first.

    `search` matches parts of titles.
    """
    rows = await selectors.list_conversations(
        user=user_of(request), search=search, agent=agent, offset=offset
    )
    return JsonResponse({"conversations": [summary(conversation) for conversation in rows]})


@api.post(
    "/conversations",
    response={201: api_schemas.ConversationAnswer, **api_schemas.ERRORS},
    tags=["conversations"],
)
async def create_conversation(
    request: HttpRequest, body: api_schemas.NewConversationBody | None = None
) -> JsonResponse:
    """Create a conversation with an optional title, agent and id."""
    wishes = body or api_schemas.NewConversationBody()
    conversation = await services.create_conversation(
        user=user_of(request),
        title=wishes.title,
        agent=wishes.agent,
        conversation_id=wishes.conversation_id,
    )
    return JsonResponse(summary(conversation), status=201)


@api.patch(
    "/conversations/{conversation_id}",
    response={200: api_schemas.ConversationAnswer, **api_schemas.ERRORS},
    tags=["conversations"],
)
async def edit_conversation(
    request: HttpRequest, conversation_id: str, body: api_schemas.EditBody
) -> JsonResponse:
    """Rename a conversation, pin or unpin it, or choose the agent that answers its next message."""
    edited = await services.edit_conversation(
        conversation_id=conversation_uuid(conversation_id), user=user_of(request), **body.dict()
    )
    return JsonResponse(summary(edited))


@api.get(
    "/conversations/{conversation_id}/export",
    response=api_schemas.ERRORS,
    openapi_extra={"responses": {200: EXPORTED}},
    tags=["conversations"],
)
async def export_conversation(
    request: HttpRequest, conversation_id: str, *, format: Literal["json", "markdown"] = "json"
) -> HttpResponse:
    """Export one of your conversations as a file, with every message and the whole result of every call.

    In JSON, a replaced turn names the turn that replaced it (`replaced_by`). Markdown omits replaced turns.
    """
    export = await selectors.export(
        conversation_id=conversation_uuid(conversation_id), user=user_of(request)
    )
    render, kind, content_type = EXPORTS[format]
    text = await in_thread(render, export)
    name = _file_name(f"{export['title'] or 'conversation'}.{kind}")
    return _file(text, name=name, is_download=True, content_type=content_type)


@api.delete(
    "/conversations/{conversation_id}",
    response={200: api_schemas.DeletionAnswer, **api_schemas.ERRORS},
    tags=["conversations"],
)
async def delete_conversation(request: HttpRequest, conversation_id: str) -> JsonResponse:
    """Delete a conversation. Its unfinished turns are cancelled, it is hidden immediately, and its content is removed."""
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
    """Send a message. It starts a turn, or cancels one if it is a cancel word (C6)."""
    received = await services.receive_message(
        conversation_id=conversation_uuid(conversation_id),
        user=user_of(request),
        text=body.text,
        client_id=body.client_id,
        replaces=replaced_turn(body.replaces),
        attachments=[attachment_uuid(raw_id) for raw_id in body.attachments],
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
    """Return the latest messages, or those before a position, with their calls in the format of a `snapshot` frame."""
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
    """Return the history that the model reads, which is always valid (H1), and the repairs made to it."""
    content = await selectors.history(
        conversation_id=conversation_uuid(conversation_id), user=user_of(request)
    )
    # In a thread, because the results are complete and can be long.
    return await in_thread(JsonResponse, content)


@api.post(
    "/attachments",
    response={201: wire.AttachmentContent, **UPLOAD_ERRORS},
    openapi_extra=UPLOAD,
    tags=["attachments"],
)
async def attach(
    request: HttpRequest, name: QueryEx[str, P(max_length=1_000)] = "file"
) -> JsonResponse:
    """Upload a file as the raw body of the request. You can attach it to a message within a day."""
    _check_upload(request)
    block = await services.add_attachment(user=user_of(request), name=name, source=request)
    return JsonResponse(block, status=201)


@api.get(
    "/attachments/{attachment_id}",
    response=api_schemas.ERRORS,
    openapi_extra={"responses": {200: FILE}},
    tags=["attachments"],
)
async def attachment(
    request: HttpRequest, attachment_id: str, *, download: bool = False
) -> HttpResponse:
    """Return a file. Browsers show images, unless you set `download=true`, and save all other files."""
    file = await selectors.attached_file(
        attachment_id=attachment_uuid(attachment_id), user=user_of(request)
    )
    is_download = download or not file.is_image
    answer = _file(
        file.content, name=file.name, is_download=is_download, content_type=file.media_type
    )
    answer["Cross-Origin-Resource-Policy"] = "same-origin"
    return answer


@api.delete(
    "/attachments/{attachment_id}", response={204: None, **api_schemas.ERRORS}, tags=["attachments"]
)
async def discard_attachment(request: HttpRequest, attachment_id: str) -> HttpResponse:
    """Delete an uploaded file that is not attached to a message."""
    await services.discard_attachment(
        user=user_of(request), attachment_id=attachment_uuid(attachment_id)
    )
    return HttpResponse(status=204)


def summary(conversation: Any) -> dict[str, Any]:
    """Return a conversation in wire format."""
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


@open_view
async def unknown(request: HttpRequest, **_path: Any) -> JsonResponse:
    """Return the 404 response for an unknown address below `/api/`."""
    return api_errors.not_found()


def add_operation(target: NinjaAPI, operation: type[Operation]) -> None:
    """Add the HTTP endpoint of an operation, which clients can also request with a frame."""
    fields: dict[str, Any] = dict.fromkeys(operation.path_ids(), (str, ...))
    path_model = create_model(f"{operation.__name__}Path", __base__=Schema, **fields)
    status, *_others = operation.answers

    async def endpoint(request: HttpRequest, ids: Any, body: Any = None) -> HttpResponse:
        requester = Requester(user=user_of(request), source=CancelSource.API)
        action = operation() if body is None else body
        result = await action.perform(with_ids(requester, **ids.model_dump()))
        is_late = result.outcome == OpOutcome.ALREADY_FINISHED
        if is_late and operation.answers.get(409) is api_schemas.DecidedAnswer:
            return api_errors.decided(result.answer["status"])
        _check(
            result.outcome, missing=ToolCallNotFound() if "tool_id" in fields else TurnNotFound()
        )
        return JsonResponse(result.answer, status=status)

    _sign(endpoint, operation, path_model)
    responses = {**operation.answers, **api_schemas.ERRORS}
    tag = operation.path.split("/")[1]
    target.post(
        operation.path,
        response=responses,
        tags=[tag],
        operation_id=f"webchat_api_{operation.name}",  # generated clients name their function after this
    )(endpoint)


def _sign(endpoint: Any, operation: type[Operation], path_model: type[Schema]) -> None:
    """Set the name and annotations of an endpoint, from which the API description is generated."""
    may_be_empty = _may_be_empty(operation)
    ids: Any = Path[path_model]  # type: ignore[misc, valid-type]  # the model is only known at run time
    endpoint.__name__, endpoint.__doc__ = operation.name, operation.__doc__
    endpoint.__annotations__ |= {
        "ids": ids,
        "body": operation | None if may_be_empty else operation,
    }
    endpoint.__defaults__ = (None,) if may_be_empty else None


def _may_be_empty(operation: type[Operation]) -> bool:
    """Return whether a request for the operation may omit its body."""
    try:
        operation()
    except ValidationError:
        return False
    return True


def _check(outcome: str, *, missing: TurnsError) -> None:
    """Raise the error that matches the outcome, unless the operation was accepted."""
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


def _check_upload(request: HttpRequest) -> None:
    """Raise `Refused` unless the body is declared as raw bytes within the size limit.

    Forms are refused, because other sites can send them, and because parsing them blocks the event loop.
    """
    if request.content_type != FILE_TYPE:
        raise Refused(415, "unsupported_media_type", _("Send application/octet-stream."))
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length = 0
    if length > turn_settings.ATTACHMENT_MAX_BYTES:
        raise Refused(413, "body_too_large", _("The file is too large."))


def _file_name(name: str) -> str:
    stem, _, kind = get_valid_filename(name).lstrip(".").rpartition(".")
    return f"{stem[:_LONGEST_NAME] or 'text'}.{kind}"


def _file(content: str | bytes, *, name: str, is_download: bool, content_type: str) -> HttpResponse:
    """Return a response with a named file.

    Its headers prevent browsers from rendering it as a page or running scripts in it.
    """
    headers = {
        "Content-Disposition": content_disposition_header(is_download, name),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    is_text = isinstance(content, str) or content_type.startswith("text/")
    charset = "; charset=utf-8" if is_text else ""
    return HttpResponse(content, content_type=f"{content_type}{charset}", headers=headers)


def user_of(request: HttpRequest) -> Any:
    """Return the user whom the session or the token authenticated."""
    return request.auth  # type: ignore[attr-defined]  # set by ninja after authentication


def turn_uuid(text: str) -> UUID:
    """Return the parsed id of a turn. Raise `TurnNotFound` for a malformed id, as for an unknown one."""
    turn_id = uuid_of(text)
    if turn_id is None:
        raise TurnNotFound
    return turn_id


def conversation_uuid(text: str) -> UUID:
    """Return the parsed id of a conversation. A malformed id becomes one that no conversation has."""
    return uuid_of(text) or UUID(int=0)


for _operation in OPERATIONS.values():
    add_operation(api, _operation)
_views, _app_name, _namespace = api.urls
urlpatterns = [
    path("", include((api_errors.with_json_errors(_views), _app_name), namespace=_namespace)),
    re_path(r"^", unknown),
]
