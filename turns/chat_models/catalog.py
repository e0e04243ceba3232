"""Finds chat models by name: `local`, which is built in and needs no key, `provider:model`, or the path of a
factory.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from django.utils.module_loading import import_string
from django.utils.translation import gettext_noop as _

from turns.chat_models.local import LocalChatModel
from turns.chat_models.providers import (
    PROVIDERS,
    ProviderChatModel,
    PydanticAIChatModel,
    endpoints,
    split,
)
from turns.core.chat_model import ChatModel
from turns.core.exceptions import ChatModelError

__all__ = ["LocalChatModel", "PydanticAIChatModel", "get_chat_model"]

logger = logging.getLogger(__name__)

LOCAL = "local"
_stand_ins: list[ChatModel] = []


@cache
def get_chat_model(name: str) -> ChatModel:
    """Return the chat model with this name. Each model is created once; `get_chat_model.cache_clear()` forgets all of
    them.

    The name is `local`, the name of a model of a provider or of an endpoint of this site, such as `anthropic:…`, or the
    path of a factory, `package.module:factory`.

    Raises:
        ChatModelError: there is no chat model with this name.
    """
    if _stand_ins:
        return _stand_ins[-1]
    if name == LOCAL:
        return LocalChatModel()
    if (provider_and_model := split(name)) is not None:
        return ProviderChatModel(*provider_and_model)
    try:
        factory = import_string(name.replace(":", ".", 1))
    except ImportError as error:
        # The module may exist but fail to import something itself. No system check reports that for an agent's chat model.
        logger.warning("A chat model could not be imported", exc_info=True)
        raise _unknown(name) from error
    if not callable(factory):
        raise _unknown(name)
    model: ChatModel = factory()
    return model


@contextmanager
def standing_in(model: ChatModel) -> Iterator[None]:
    """Use this chat model in place of every other one, so that a test never calls a provider."""
    _stand_ins.append(model)
    get_chat_model.cache_clear()
    try:
        yield
    finally:
        _stand_ins.pop()
        get_chat_model.cache_clear()


UNKNOWN = _(
    "There is no chat model named “%(name)s”. An administrator can set TURNS_CHAT_MODEL to “local”, to a "
    "provider’s model such as “anthropic:claude-sonnet-5-5” (%(providers)s), or to the path of a function that returns "
    "a model, such as “package.module:factory”."
)


def is_known(name: str) -> bool:
    """Return whether a chat model with this name exists. A factory is imported for this check but not called."""
    if public_name(name):
        return True
    try:
        return callable(import_string(name.replace(":", ".", 1)))
    except ImportError:
        return False


def most_tools(name: str) -> int | None:
    """Return how many tools the provider of a chat model accepts in one request; None if there is no known limit."""
    provider_and_model = split(name)
    return provider_and_model[0].most_tools if provider_and_model else None


def public_name(name: str) -> str | None:
    """Return a chat model's name, or None if it is the path of a factory, because that is private code."""
    return name if name == LOCAL or split(name) else None


def _unknown(name: str) -> ChatModelError:
    providers = ", ".join(f"{provider}:…" for provider in (*PROVIDERS, *endpoints()))
    return ChatModelError("unknown_chat_model", UNKNOWN % {"name": name, "providers": providers})
