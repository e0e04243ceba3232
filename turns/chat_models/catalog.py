"""Chat models by name: `local`, built in and without a key, `provider:model`, or the path of a factory."""

import logging
from functools import cache

from django.utils.module_loading import import_string
from django.utils.translation import gettext_noop as _

from turns.chat_models.local import LocalChatModel
from turns.chat_models.providers import (
    PROVIDERS,
    ProviderChatModel,
    close_connections,
    problem_of,
    split,
    warm,
)
from turns.core.chat_model import ChatModel
from turns.core.exceptions import ChatModelError

__all__ = [
    "LocalChatModel",
    "ProviderChatModel",
    "close_connections",
    "get_chat_model",
    "is_known",
    "most_tools",
    "problem_of",
    "public_name",
    "warm",
]

logger = logging.getLogger(__name__)

LOCAL = "local"


@cache
def get_chat_model(name: str) -> ChatModel:
    """Return the chat model of this name, made once; `get_chat_model.cache_clear()` forgets them.

    The name is `local`, `anthropic:…`, `openai:…`, `google:…`, or the path of a factory, `package.module:factory`.

    Raises:
        ChatModelError: there is none of this name.
    """
    if name == LOCAL:
        return LocalChatModel()
    if (found := split(name)) is not None:
        provider, model_name = found
        return ProviderChatModel(provider, model_name)
    try:
        factory = import_string(name.replace(":", ".", 1))
    except ImportError as error:
        # The code may be there, and fail to import something. An agent's chat model has no check that says so.
        logger.warning("A chat model could not be imported", exc_info=True)
        raise _unknown(name) from error
    if not callable(factory):
        raise _unknown(name)
    model: ChatModel = factory()
    return model


UNKNOWN = _(
    "There is no chat model named “%(name)s”. An administrator can set TURNS_CHAT_MODEL to “local”, to one of a "
    "provider such as “anthropic:claude-sonnet-5-5” (%(providers)s), or to the path of a function that returns "
    "one, such as “package.module:factory”."
)


def is_known(name: str) -> bool:
    """Return whether there is a chat model of this name. The path of a factory is imported for it, not called."""
    if public_name(name):
        return True
    try:
        return callable(import_string(name.replace(":", ".", 1)))
    except ImportError:
        return False


def most_tools(name: str) -> int | None:
    """Return how many tools the provider of a chat model takes in one request; None = any number."""
    found = split(name)
    return found[0].most_tools if found else None


def public_name(name: str) -> str | None:
    """Return a chat model's name as anybody may read it; None for a path inside this site's code."""
    return name if name == LOCAL or split(name) else None


def _unknown(name: str) -> ChatModelError:
    providers = ", ".join(f"{provider}:…" for provider in PROVIDERS)
    return ChatModelError("unknown_chat_model", UNKNOWN % {"name": name, "providers": providers})
