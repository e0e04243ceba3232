"""Chat models of providers: a server for each test, the keys, and no connection left open."""

import pytest

from tests.turns.chat_models.dialects import DIALECTS, KEY, PIECED
from tests.turns.chat_models.servers import Server
from tests.turns.support import ChatDriver
from turns.chat_models.catalog import get_chat_model
from turns.chat_models.providers import PROVIDERS, close_connections


@pytest.fixture(params=list(DIALECTS))
def dialect(request):
    return DIALECTS[request.param]


@pytest.fixture(params=list(PIECED))
def pieced(request):
    return PIECED[request.param]


@pytest.fixture(autouse=True)
def known_chat_models():
    """Each test makes its chat models anew."""
    get_chat_model.cache_clear()
    yield
    get_chat_model.cache_clear()


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """No key and no address of the developer's."""
    for provider in PROVIDERS.values():
        for name in (*provider.keys, provider.base_url_variable):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def serve(monkeypatch, settings):
    """Start a server with a script, and point the providers to it."""
    servers: list[Server] = []

    async def start(*responses):
        server = await Server(*responses).__aenter__()
        servers.append(server)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        settings.TURNS_CHAT_MODEL_BASE_URL = f"{server.url}/v1"
        monkeypatch.setenv("GOOGLE_API_KEY", KEY)
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        return server

    yield start
    await close_connections()
    for server in servers:
        await server.__aexit__()


@pytest.fixture
def on(chat: ChatDriver, settings, dialect):
    """The conversation, with the provider's chat model answering."""
    get_chat_model.cache_clear()
    settings.TURNS_CHAT_MODEL = f"{dialect.provider}:{dialect.model_name}"
    settings.TURNS_CHAT_MODEL_RETRY_MAX_WAIT = 0.05
    yield chat
    get_chat_model.cache_clear()
