"""Anthropic's Messages API."""

from anthropic import AsyncAnthropic
from httpx2 import AsyncClient
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider


def make_model(name: str, *, key: str, base_url: str, http_client: AsyncClient) -> Model:
    """Return the model; its SDK never repeats a request by itself."""
    client = AsyncAnthropic(
        api_key=key, base_url=base_url or None, http_client=http_client, max_retries=0
    )
    # Every step of a turn sends the same history and some more. What was sent before is read from the cache.
    settings = AnthropicModelSettings(anthropic_cache=True)
    return AnthropicModel(
        name, provider=AnthropicProvider(anthropic_client=client), settings=settings
    )
