"""Endpoints of the site beside the vendors: each gets its own key, at its own address, and no other one."""

import pytest

from tests.turns.chat_models.dialects import DIALECTS, KEY, OPENAI
from tests.turns.chat_models.servers import Server
from tests.turns.chat_models.test_providers import deltas, reply_of
from tests.turns.chat_models.test_providers_failures import failed
from turns.chat_models.catalog import get_chat_model, is_known, public_name
from turns.chat_models.providers import problem_of
from turns.core.chat_model import media_of

HOUSE_KEY = "sk-of-the-house"
SECRETS = {
    "ANTHROPIC_API_KEY": KEY,
    "ANTHROPIC_AUTH_TOKEN": KEY,
    "OPENAI_API_KEY": KEY,
    "GOOGLE_API_KEY": KEY,
    "DATABASE_URL": KEY,
}


@pytest.fixture
async def house(settings, monkeypatch):
    """Declare an endpoint, and start its server with a script."""
    servers = []

    async def start(*script, **endpoint):
        server = await Server(*script).__aenter__()
        servers.append(server)
        path = "/v1" if endpoint.get("api", "openai").startswith("openai") else ""
        address = f"{server.url}{path}"
        settings.TURNS_CHAT_MODEL_ENDPOINTS = {"house": {"base_url": address, **endpoint}}
        for name, value in SECRETS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HOUSE_KEY", HOUSE_KEY)
        return server

    yield start
    for server in servers:
        await server.__aexit__()


async def test_a_vendor_and_a_server_of_the_house_are_asked_side_by_side(serve, house):
    vendor = await serve(OPENAI.answer(OPENAI.text("From the vendor.")))
    own = await house(OPENAI.answer(OPENAI.text("From the house.")), key_variable="HOUSE_KEY")

    answers = [
        reply_of(await deltas(get_chat_model(name))).text
        for name in ("openai:gpt-4o-mini", "house:qwen3:8b")
    ]

    assert answers == ["From the vendor.", "From the house."]
    assert vendor.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert own.requests[0].headers["authorization"] == f"Bearer {HOUSE_KEY}"
    assert own.requests[0].line.startswith("POST /v1/chat/completions")
    assert own.requests[0].body["model"] == "qwen3:8b"


@pytest.mark.parametrize("provider", DIALECTS)
@pytest.mark.parametrize("key_variable", ["HOUSE_KEY", None])
async def test_an_endpoint_gets_its_own_key_and_no_other_one(serve, house, provider, key_variable):
    await serve()
    dialect = DIALECTS[provider]
    named = {"key_variable": key_variable} if key_variable else {}
    server = await house(dialect.answer(dialect.text("Hello.")), api=dialect.provider, **named)

    reply = reply_of(await deltas(get_chat_model(f"house:{dialect.model_name}")))

    (request,) = server.requests
    sent = f"{request.line} {request.headers} {request.body}"
    assert reply.text == "Hello."
    assert dialect.path in request.line
    assert KEY not in sent
    assert (HOUSE_KEY in sent) == bool(key_variable)


async def test_a_key_that_is_not_there_is_named_and_no_other_one_goes_instead(house, monkeypatch):
    server = await house(key_variable="HOUSE_KEY")
    monkeypatch.delenv("HOUSE_KEY")

    failure = await failed(get_chat_model("house:qwen3:8b"))

    assert failure.code == "chat_model_key_missing"
    assert "HOUSE_KEY" in failure.message
    assert problem_of("house:qwen3:8b").message == failure.message
    assert server.requests == []


async def test_an_endpoint_is_a_name_that_people_may_read_and_its_files_are_text(house):
    await house()

    assert public_name("house:qwen3:8b") == "house:qwen3:8b"
    assert media_of(get_chat_model("house:qwen3:8b")) == frozenset()
    assert not is_known("mansion:qwen3:8b")
    assert not is_known("house:")
