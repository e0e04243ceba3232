"""The doors of one API and another, the providers that speak OpenAI's, and models of pydantic-ai that a host makes."""

import asyncio

import httpx2
import pytest
from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.docs.pages import DOCS, python_blocks
from tests.support import PATIENCE
from tests.turns.chat_models.dialects import KEY, OPENAI, RESPONSES, model_of
from tests.turns.chat_models.servers import Hold, completions, responses
from tests.turns.chat_models.test_providers import ASKED, deltas, reply_of
from tests.turns.chat_models.test_providers_failures import failed
from turns.chat_models.catalog import PydanticAIChatModel, get_chat_model
from turns.chat_models.providers import COMPATIBLE, RetryPolicy
from turns.chat_models.vendors.openai import make_model
from turns.core.chat_model import TextDelta, ToolCallDelta

OWN_SERVER = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("provider", "base_url", "expected"),
    [
        ("openai", "", OpenAIResponsesModel),
        ("openai", OWN_SERVER, OpenAIChatModel),
        ("openai-chat", "", OpenAIChatModel),
        ("openai-chat", OWN_SERVER, OpenAIChatModel),
        ("openai-responses", "", OpenAIResponsesModel),
        ("openai-responses", OWN_SERVER, OpenAIResponsesModel),
    ],
)
async def test_the_name_and_the_server_say_which_api_is_spoken(provider, base_url, expected):
    async with httpx2.AsyncClient() as http_client:
        model = make_model(
            "gpt-5.6-sol", provider=provider, key=KEY, base_url=base_url, http_client=http_client
        )

    assert isinstance(model, expected)
    assert (base_url or "https://api.openai.com/v1") in str(model.base_url)


async def test_openai_keeps_nothing_of_what_it_is_asked_by_the_responses_api(serve):
    server = await serve(RESPONSES.answer(responses.text("Hello.")))

    await deltas(model_of(RESPONSES))

    (request,) = server.requests
    assert request.line.startswith("POST /v1/responses")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["store"] is False
    assert request.body["include"] == ["reasoning.encrypted_content"]
    assert [tool["name"] for tool in request.body["tools"]] == ["get_weather"]


async def test_a_refusal_by_the_responses_api_is_no_answer(serve):
    await serve(RESPONSES.answer(responses.refusal("I cannot help with that.")))

    assert (await failed(model_of(RESPONSES))).code == "chat_model_declined"


@pytest.mark.parametrize("event", [responses.failed, responses.error])
@pytest.mark.parametrize(
    ("their_code", "code"),
    [
        ("server_error", "chat_model_unavailable"),
        ("rate_limit_exceeded", "chat_model_busy"),
        ("insufficient_quota", "chat_model_quota"),
        ("context_length_exceeded", "context_too_long"),
        ("invalid_prompt", "chat_model_rejected"),
        ("not_known_yet", "chat_model_rejected"),
    ],
)
async def test_what_the_responses_api_says_within_the_stream_is_as_clear_as_a_status(
    serve, event, their_code, code
):
    server = await serve(
        *[RESPONSES.unfinished(event(their_code, f"0xC0FFEE {KEY} " + "word " * 1_000))] * 2
    )

    failure = await failed(model_of(RESPONSES, retries=0))

    assert failure.code == code
    assert len(server.requests) == 1
    assert failure.is_too_long == (code == "context_too_long")
    assert "0xC0FFEE" in failure.detail
    assert "0xC0FFEE" not in failure.message
    assert KEY not in failure.detail
    assert len(failure.detail) <= 1_000


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            "400 Bad Request",
            "Function tools with reasoning_effort are not supported for gpt-5.6-sol in /v1/chat/completions. To use "
            "function tools, use /v1/responses or set reasoning_effort to 'none'.",
        ),
        (
            "404 Not Found",
            "This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to use "
            "v1/completions?",
        ),
    ],
)
async def test_a_model_of_another_api_is_told_as_that(serve, status, words):
    await serve(completions.error(status, words, type="invalid_request_error"))

    failure = await failed(model_of(OPENAI))

    assert failure.code == "chat_model_wrong_api"
    assert "openai-responses:" in failure.message


@pytest.fixture
async def compatible(request, serve, monkeypatch):
    """Serve a script as one of the providers that speak OpenAI's API."""

    async def start(*script):
        server = await serve(*script)
        variable = request.param.upper()
        monkeypatch.setenv(f"{variable}_API_KEY", KEY)
        monkeypatch.setenv(f"{variable}_BASE_URL", f"{server.url}/v1")
        return server, get_chat_model(f"{request.param}:openai/gpt-oss-120b")

    return start


async def first_text_then_cancel(model):
    """Cancel the task that streams as soon as it has said something."""
    said = asyncio.Event()

    async def consume():
        async for delta in model.stream(ASKED):
            if isinstance(delta, TextDelta):
                said.set()

    streaming = asyncio.create_task(consume())
    await said.wait()
    streaming.cancel()
    await asyncio.wait({streaming})


@pytest.mark.parametrize("compatible", COMPATIBLE, indirect=True)
async def test_a_provider_by_name_answers_and_is_left_when_it_is_cancelled(compatible):
    server, model = await compatible(
        OPENAI.answer(
            completions.text("Look: "), completions.call(0, "call_a", "get_weather"), calls=True
        ),
        OPENAI.unfinished(*OPENAI.open_text("Once upon"), Hold()),
    )

    reply = reply_of(await deltas(model))
    async with asyncio.timeout(PATIENCE):
        await first_text_then_cancel(model)
        await server.left.wait()

    assert (reply.text, reply.has_calls) == ("Look: ", True)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("compatible", COMPATIBLE, indirect=True)
async def test_a_provider_by_name_has_to_say_why_an_answer_ended(compatible):
    _server, model = await compatible(OPENAI.unfinished(*OPENAI.open_text("Once upon")))

    assert (await failed(model)).code == "chat_model_dropped"


async def test_a_host_may_bring_any_model_of_pydantic_ai(serve):
    server = await serve(
        OPENAI.answer(completions.text("Hello.")),
        OPENAI.unfinished(*OPENAI.open_text("Once upon"), Hold()),
    )

    def make(http_client):
        client = AsyncOpenAI(api_key=KEY, base_url=f"{server.url}/v1", http_client=http_client)
        return OpenAIChatModel("own", provider=OpenAIProvider(openai_client=client))

    model = PydanticAIChatModel(make, name="own:model", media={"image"})
    reply = reply_of(await deltas(model))
    async with asyncio.timeout(PATIENCE):
        await first_text_then_cancel(model)
        await server.left.wait()

    assert reply.text == "Hello."
    assert model.media == {"image"}


async def test_the_sdk_of_a_model_that_the_host_brings_repeats_nothing(serve):
    server = await serve(*[completions.error("500 Internal Server Error", "Oops")] * 3)

    def make(http_client):
        client = AsyncOpenAI(
            api_key=KEY, base_url=f"{server.url}/v1", http_client=http_client, max_retries=2
        )
        return OpenAIChatModel("own", provider=OpenAIProvider(openai_client=client))

    once = PydanticAIChatModel(make, name="own:model", retry_policy=lambda: RetryPolicy(retries=0))
    refused = await failed(once)

    assert refused.code == "chat_model_unavailable"
    assert len(server.requests) == 1


async def test_a_host_without_a_variable_for_its_key_is_told_to_check_the_key(serve):
    server = await serve(completions.error("401 Unauthorized", "No.", code="invalid_api_key"))

    def make(http_client):
        client = AsyncOpenAI(api_key=KEY, base_url=f"{server.url}/v1", http_client=http_client)
        return OpenAIChatModel("own", provider=OpenAIProvider(openai_client=client))

    refused = await failed(PydanticAIChatModel(make, name="own:model"))

    assert refused.message.endswith("An administrator can check the key.")


def block_of_the_page(text: str) -> dict[str, object]:
    """Run the block of docs/howto/extend.md in which this stands, and return its names."""
    [block] = [block for block in python_blocks(DOCS / "howto" / "extend.md") if text in block]
    names: dict[str, object] = {}
    exec(block, names)
    return names


async def test_the_chat_model_for_azure_on_the_page_asks_its_deployment_for_a_tool(
    serve, monkeypatch
):
    server = await serve(RESPONSES.answer(responses.call(0, "call_1", "wait", seconds=1)))
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    page = block_of_the_page("AzureProvider")
    provider = page["AzureProvider"]
    monkeypatch.setitem(
        page,
        "AzureProvider",
        lambda *, azure_endpoint, **options: provider(
            azure_endpoint=azure_endpoint.replace(
                "https://my-resource.openai.azure.com", server.url
            ),
            **options,
        ),
    )

    said = await deltas(page["make_model"]())

    (request,) = server.requests
    assert request.line.startswith("POST /openai/v1/responses ")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["model"] == "my-deployment"
    assert request.body["store"] is False
    assert "wait" in [delta.name for delta in said if isinstance(delta, ToolCallDelta)]


async def test_the_chat_model_for_vertex_on_the_page_asks_googles_cloud():
    page = block_of_the_page("GoogleCloudProvider")
    async with httpx2.AsyncClient(timeout=60) as http_client:
        model = page["make"](http_client)

    assert "us-central1-aiplatform.googleapis.com" in model.base_url
