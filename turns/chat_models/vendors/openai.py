"""OpenAI's chat completions, and every server that speaks them."""

import json
from collections.abc import AsyncIterator

from httpx2 import AsyncClient
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

THINKS_IN_TEXT = True  # some servers write the model's thoughts into its text
_NO_KEY = "no-key"  # the SDK wants one; a server of one's own often does not
_NO_TAG = "\0"  # the SDK would look for tags in whole pieces only


def make_model(name: str, *, key: str, base_url: str, http_client: AsyncClient) -> Model:
    """Return the model; its SDK never repeats a request by itself."""
    client = AsyncOpenAI(
        api_key=key or _NO_KEY, base_url=base_url or None, http_client=http_client, max_retries=0
    )
    # An answer that ends without a reason was cut off: a call in it may be half a call.
    profile = OpenAIModelProfile(
        openai_chat_streaming_requires_finish_reason=True, thinking_tags=(_NO_TAG, _NO_TAG)
    )
    return _ChatModel(name, provider=OpenAIProvider(openai_client=client), profile=profile)


class _ChatModel(OpenAIChatModel):
    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _Stream


class _Stream(OpenAIStreamedResponse):
    """Tells calls apart that a compatible server has sent under one index."""

    async def _validate_response(self) -> AsyncIterator[ChatCompletionChunk]:
        calls = _Calls()
        async for chunk in super()._validate_response():
            for choice in chunk.choices or ():
                # What follows no documentation may lack any of it.
                for piece in getattr(choice.delta, "tool_calls", None) or ():
                    if getattr(piece, "index", None) is not None:
                        calls.set_index(piece)
            yield chunk


class _Calls:
    """Gives each call of a stream an index of its own."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}  # the index as it was sent: the one that it stands for
        self._seen: dict[int, tuple[str, str]] = {}  # id and arguments so far
        self._next = 0

    def set_index(self, piece: ChoiceDeltaToolCall) -> None:
        place = self._places.get(piece.index)
        if place is None or self._begins_another(piece, *self._seen[place]):
            place = self._places[piece.index] = max(self._next, piece.index)
            self._next = place + 1
            self._seen[place] = ("", "")
        id, arguments = self._seen[place]
        more = piece.function.arguments if piece.function else None
        piece.id = id or piece.id
        self._seen[place] = (piece.id or "", arguments + (more or ""))
        piece.index = place

    def _begins_another(self, piece: ChoiceDeltaToolCall, id: str, arguments: str) -> bool:
        said = piece.function
        if not (said and said.name):  # some servers give each piece another id
            return False
        if piece.id and id:
            return piece.id != id
        return bool(said.arguments and _is_whole(arguments))


def _is_whole(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except ValueError:
        return False
    return True
