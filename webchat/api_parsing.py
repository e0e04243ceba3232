"""What a request of the HTTP API means: who asks, for which turn, with which body."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja.params import P
from ninja.parser import Parser

from turns.exceptions import TurnNotFound
from webchat.exceptions import UnsupportedMediaType
from webchat.operations import uuid_of

FORMS = {"application/x-www-form-urlencoded", "multipart/form-data"}
SEQ = P(ge=0, le=2**62)


class JsonParser(Parser):
    """Reads JSON bodies only: a form of another site cannot pose as one."""

    def parse_body(self, request: HttpRequest) -> Any:
        """Return the body as it was sent; a form without a field says nothing, as no body does."""
        if request.content_type == "application/json":
            return super().parse_body(request)
        if request.content_type in FORMS and not request.POST and not request.FILES:
            return {}
        raise UnsupportedMediaType("unsupported_media_type", _("Send application/json."))


def user_of(request: HttpRequest) -> Any:
    """Return who asks: the user that the session or the token stands for."""
    return request.auth  # type: ignore[attr-defined]  # set by ninja after authentication


def turn_uuid(text: str) -> UUID:
    """Return a turn's id; an id of another form is a turn that nobody has."""
    found = uuid_of(text)
    if found is None:
        raise TurnNotFound
    return found


def conversation_uuid(text: str) -> UUID:
    """Return a conversation's id; an id of another form is a conversation that nobody has."""
    return uuid_of(text) or UUID(int=0)
