"""Chat models by name: `local`, or the dotted path of a factory."""

from functools import cache

from django.utils.module_loading import import_string

from turns.core.chat_model import ChatModel


@cache
def get_chat_model(name: str) -> ChatModel:
    """Return the chat model of this name."""
    path = "turns.chat_models.local.LocalChatModel" if name == "local" else name
    model: ChatModel = import_string(path)()
    return model
