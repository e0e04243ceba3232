"""What the templates of a chat need, on the page of the project and in pages of a host."""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.shortcuts import resolve_url
from django.utils.http import urlencode
from django.utils.translation import get_language

from governance import cancel_vocabulary
from turns.conf import app_settings as turn_settings
from webchat import attachments
from webchat.page_texts import CHAT_TEXTS

PLACEHOLDER = UUID(int=0)  # the scripts put the id of a conversation in its place


def chat_context(*, path: str) -> dict[str, Any]:
    """Return what every chat is given; `path` is the page on which it stands."""
    return {
        "texts": CHAT_TEXTS,
        "attachment_limits": attachments.limits(),
        "stop_words": cancel_vocabulary(get_language() or "", also=turn_settings.CANCEL_WORDS),
        "placeholder_id": PLACEHOLDER,
        "socket_path": f"/ws/conversations/{PLACEHOLDER}/",
        "login_url": f"{resolve_url(settings.LOGIN_URL)}?{urlencode({'next': path})}",
    }
