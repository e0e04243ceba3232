"""OpenAI's chat completions, and every server that speaks them."""

from httpx2 import AsyncClient
from openai import AsyncOpenAI
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider

_NO_KEY = "no-key"  # the SDK wants one; a server of one's own often does not


def make_model(name: str, *, key: str, base_url: str, http_client: AsyncClient) -> Model:
    """Return the model; its SDK never repeats a request by itself."""
    client = AsyncOpenAI(
        api_key=key or _NO_KEY, base_url=base_url or None, http_client=http_client, max_retries=0
    )
    # An answer that ends without a reason was cut off: a call in it may be half a call.
    profile = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client), profile=profile)
