"""Chat models by name: `local`, built in and without a key, or the path of a factory."""

from functools import cache

from django.utils.module_loading import import_string
from django.utils.translation import gettext as _

from turns.chat_models.local import LocalChatModel
from turns.core.chat_model import ChatModel
from turns.core.exceptions import ChatModelError

__all__ = ["LocalChatModel", "get_chat_model"]

LOCAL = "local"


@cache
def get_chat_model(name: str) -> ChatModel:
    """Return the chat model of this name, made once: `local`, or what the factory `package.module:factory` returns.

    `get_chat_model.cache_clear()` forgets them.

    Raises:
        ChatModelError: there is none of this name.
    """
    if name == LOCAL:
        return LocalChatModel()
    try:
        factory = import_string(name.replace(":", ".", 1))
    except ImportError as error:
        raise _unknown(name) from error
    if not callable(factory):
        raise _unknown(name)
    model: ChatModel = factory()
    return model


def _unknown(name: str) -> ChatModelError:
    sentence = _(
        "There is no chat model named “%(name)s”. An administrator can set TURNS_CHAT_MODEL to “local”, or to "
        "the path of a function that returns one, such as “package.module:factory”."
    )
    return ChatModelError("unknown_chat_model", sentence % {"name": name})
