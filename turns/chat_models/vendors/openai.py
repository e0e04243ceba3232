"""Creates models that use OpenAI's Responses API or its chat completions API, which compatible servers offer too."""

import json
from collections.abc import AsyncIterator, Callable, Mapping

from httpx2 import AsyncClient
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
from pydantic_ai.models import Model
from pydantic_ai.models.cerebras import CerebrasModel
from pydantic_ai.models.openai import (
    OpenAIChatModel,
    OpenAIResponsesModel,
    OpenAIResponsesModelSettings,
    OpenAIStreamedResponse,
)
from pydantic_ai.models.openrouter import OpenRouterModel
from pydantic_ai.models.zai import ZaiModel
from pydantic_ai.profiles import merge_profile
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider, infer_provider_class

from turns.chat_models.vendors.thoughts import KeepsMessagesApart, ThinksInText

# An answer without a finish reason was cut off, so a call in it may be incomplete.
_SAYS_WHY_IT_ENDS = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
# pydantic-ai would not recognize a tag that is split over two chunks; `ThinksInText` does.
_NO_TAGS = merge_profile(_SAYS_WHY_IT_ENDS, OpenAIModelProfile(thinking_tags=("\0", "\0")))
_OWN_CLASSES: Mapping[str, type[OpenAIChatModel]] = {
    "cerebras": CerebrasModel,
    "openrouter": OpenRouterModel,
    "zai": ZaiModel,
}


def make_model(
    name: str, *, provider: str, key: str, base_url: str, http_client: AsyncClient
) -> Model:
    """Return a pydantic-ai model. It uses the Responses API for OpenAI itself, and chat completions for any other
    server.
    """
    make_provider: Callable[..., Provider[AsyncOpenAI]] = infer_provider_class(provider)
    vendor = make_provider(api_key=key, http_client=http_client)
    if base_url:
        vendor.client.base_url = base_url
    if provider == "openai-responses" or (provider == "openai" and not base_url):
        settings = OpenAIResponsesModelSettings(openai_store=False)
        return _ResponsesModel(name, provider=vendor, settings=settings)
    if (model_class := _OWN_CLASSES.get(provider)) is not None:
        return model_class(name, provider=vendor, profile=_SAYS_WHY_IT_ENDS)
    return _ChatModel(name, provider=vendor, profile=_NO_TAGS)


class _ResponsesModel(KeepsMessagesApart, OpenAIResponsesModel):
    pass


class _ChatModel(ThinksInText, OpenAIChatModel):
    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _Stream


class _Stream(OpenAIStreamedResponse):
    """Separates calls that a compatible server has sent under the same index."""

    async def _validate_response(self) -> AsyncIterator[ChatCompletionChunk]:
        calls = _Calls()
        async for chunk in super()._validate_response():
            for choice in chunk.choices or ():
                # A server that does not follow the API may leave out any field.
                for piece in getattr(choice.delta, "tool_calls", None) or ():
                    if getattr(piece, "index", None) is not None:
                        calls.set_index(piece)
            yield chunk


class _Calls:
    """Assigns a separate index to each call of a stream."""

    def __init__(self) -> None:
        self._indexes: dict[int, int] = {}  # the assigned index by the server's index
        self._calls: dict[int, tuple[str, str]] = {}  # id and arguments so far, by assigned index
        self._next = 0

    def set_index(self, piece: ChoiceDeltaToolCall) -> None:
        index = self._indexes.get(piece.index)
        if index is None or self._begins_call(piece, *self._calls[index]):
            index = self._indexes[piece.index] = max(self._next, piece.index)
            self._next = index + 1
            self._calls[index] = ("", "")
        id, arguments = self._calls[index]
        more = piece.function.arguments if piece.function else None
        piece.id = id or piece.id
        self._calls[index] = (piece.id or "", arguments + (more or ""))
        piece.index = index

    def _begins_call(self, piece: ChoiceDeltaToolCall, id: str, arguments: str) -> bool:
        """Return whether a piece begins another call than the one with this id and these arguments so far."""
        function = piece.function
        if not (function and function.name):  # some servers send a new id with each piece
            return False
        if piece.id and id:
            return piece.id != id
        return bool(function.arguments and _is_json(arguments))


def _is_json(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except ValueError:
        return False
    return True
