"""Parsing of API requests: the user, the ids in the path, the JSON body."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja.params import P
from ninja.parser import Parser

from turns.exceptions import TurnNotFound
from webchat.exceptions import UnsupportedMediaType
from webchat.operations import uuid_of

SEQ = P(ge=0, le=2**62)


class JsonParser(Parser):
    """Reads JSON bodies only: a form on another site cannot send one."""

    def parse_body(self, request: HttpRequest) -> Any:
        """Return the parsed body."""
        if request.content_type != "application/json":
            raise UnsupportedMediaType("unsupported_media_type", _("Send application/json."))
        return super().parse_body(request)


def user_of(request: HttpRequest) -> Any:
    """Return the user of the session or the token."""
    return request.auth  # type: ignore[attr-defined]  # set by ninja after authentication


def turn_uuid(text: str) -> UUID:
    """Return a turn's id. Malformed ids are answered like unknown ones."""
    found = uuid_of(text)
    if found is None:
        raise TurnNotFound
    return found


def conversation_uuid(text: str) -> UUID:
    """Return a conversation's id. A malformed id becomes one that no conversation has."""
    return uuid_of(text) or UUID(int=0)
