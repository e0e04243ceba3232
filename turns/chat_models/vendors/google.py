"""Creates models that use Google's Gemini API."""

from httpx2 import AsyncClient
from pydantic_ai.models import Model
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider

from turns.chat_models.vendors.thoughts import KeepsMessagesApart


def make_model(
    name: str, *, key: str, base_url: str, http_client: AsyncClient, provider: str = ""
) -> Model:
    """Return a pydantic-ai model for this API."""
    vendor = GoogleProvider(api_key=key, base_url=base_url or None, http_client=http_client)
    return _Model(name, provider=vendor)


class _Model(KeepsMessagesApart, GoogleModel):
    pass
