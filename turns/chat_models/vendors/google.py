"""Google's Gemini API."""

from httpx2 import AsyncClient
from pydantic_ai.models import Model
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider


def make_model(name: str, *, key: str, base_url: str, http_client: AsyncClient) -> Model:
    """Return the model; its SDK repeats nothing by default."""
    provider = GoogleProvider(api_key=key, base_url=base_url or None, http_client=http_client)
    return GoogleModel(name, provider=provider)
