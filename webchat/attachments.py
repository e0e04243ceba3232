"""Files in requests and answers: bare bodies come in, and nothing that goes out runs in a browser."""

from django.http import HttpRequest, HttpResponse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _

from turns.conf import app_settings as turn_settings
from turns.selectors import AttachedFile
from webchat.exceptions import Refused

BODY_TYPE = "application/octet-stream"
_BINARY = {BODY_TYPE: {"schema": {"type": "string", "format": "binary"}}}
UPLOAD = {"requestBody": {"required": True, "content": _BINARY}}
DESCRIPTION = {"description": "The file", "content": _BINARY}


def check_body(request: HttpRequest) -> None:
    """Raise unless the body is declared as bare bytes of a bearable number.

    No form is taken: a page elsewhere can send one, and to parse it would hold up the event loop.
    """
    if request.content_type != BODY_TYPE:
        raise Refused(415, "unsupported_media_type", _("Send application/octet-stream."))
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length = 0
    if length > turn_settings.ATTACHMENT_MAX_BYTES:
        raise Refused(413, "body_too_large", _("The file is too large."))


def answer(file: AttachedFile, *, is_download: bool) -> HttpResponse:
    """Return a file under its name. No browser takes it for a page."""
    headers = {
        "Content-Disposition": content_disposition_header(is_download, file.name),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    charset = "; charset=utf-8" if file.media_type.startswith("text/") else ""
    return HttpResponse(file.content, content_type=f"{file.media_type}{charset}", headers=headers)


def limits() -> dict[str, int] | None:
    """Return what the page has to know before it uploads; None where nothing can be attached."""
    if not turn_settings.ATTACHMENT_STORAGE:
        return None
    return {
        "max_bytes": turn_settings.ATTACHMENT_MAX_BYTES,
        "max_count": turn_settings.ATTACHMENTS_PER_MESSAGE,
    }
