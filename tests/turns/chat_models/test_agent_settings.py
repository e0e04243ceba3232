"""How an agent's chat model shall answer, from the form in the admin to what each vendor is sent; and fallbacks."""

import json

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from governance.db import run_in_db_thread
from tests.console.test_agents import errors, filled_in, said
from tests.turns.chat_models.dialects import ANTHROPIC, DIALECTS, KEY, OPENAI
from tests.turns.chat_models.servers import Break, Hold, Response, completions
from turns import selectors
from turns.models import Agent, AgentChange

pytestmark = pytest.mark.django_db(transaction=True)

REFUSED = Response([b"{}"], status="401 Unauthorized")
UNAVAILABLE = Response([b"{}"], status="503 Service Unavailable")
SETTINGS = {
    "temperature": "0.3",
    "top_p": "0.8",
    "max_tokens": "20000",
    "effort": "low",
    "stop_sequences": "END\nSTOP",
    "parallel_calls": "False",
    "cache_retention": "1h",
}


@run_in_db_thread
def save(*, rights=None, **values):
    """Save the default agent's form, and return the page that follows."""
    user = get_user_model().objects.create_user(
        "editor", is_staff=True, is_superuser=rights is None
    )
    user.user_permissions.set(Permission.objects.filter(codename__in=rights or []))
    client = Client()
    client.force_login(user)
    agent, _made = Agent.objects.get_or_create(name="assistant", defaults={"is_default": True})
    url = reverse("admin:turns_agent_change", args=[agent.pk])
    return client.post(url, filled_in(client.get(url), **values), follow=True)


def model_name(dialect):
    """One that takes a temperature where the vendor has such."""
    names = {"anthropic": "claude-haiku-4-5", "openai-responses": "gpt-4o-mini"}
    return f"{dialect.provider}:{names.get(dialect.provider, dialect.model_name)}"


def sent(dialect, body):
    """The settings in a body, by our names."""
    config = body.get("generationConfig", {})
    choice = body.get("tool_choice")
    of_vendor = {
        "anthropic": lambda: {
            "max_tokens": body["max_tokens"],
            "stop_sequences": body.get("stop_sequences"),
            "parallel_calls": not choice.get("disable_parallel_tool_use"),
            "cache": body["cache_control"]["ttl"],
        },
        "openai": lambda: {
            "max_tokens": body.get("max_completion_tokens"),
            "stop_sequences": body.get("stop"),
            "parallel_calls": body.get("parallel_tool_calls"),
        },
        "openai-responses": lambda: {
            "max_tokens": body.get("max_output_tokens"),
            "parallel_calls": body.get("parallel_tool_calls"),
        },
        "google": lambda: {
            "max_tokens": config.get("maxOutputTokens"),
            "stop_sequences": config.get("stopSequences"),
            "top_p": config.get("topP"),
        },
    }[dialect.provider]()
    top_p = of_vendor.pop("top_p", body.get("top_p"))
    temperature = body.get("temperature", config.get("temperature"))
    return {"temperature": temperature, "top_p": top_p, **of_vendor}


SENT = {
    "anthropic": {"stop_sequences": ["END", "STOP"], "parallel_calls": False, "cache": "1h"},
    "openai": {"stop_sequences": ["END", "STOP"], "parallel_calls": False},
    "openai-responses": {"parallel_calls": False},
    "google": {"stop_sequences": ["END", "STOP"]},
}
IGNORED = {
    "anthropic": "",
    "openai": "effort, cache",
    "openai-responses": "effort, stop sequences, cache",
    "google": "several calls in one answer, cache",
}


@pytest.mark.parametrize("dialect", DIALECTS, indirect=True)
async def test_what_the_form_says_is_sent_and_what_is_ignored_is_told(serve, chat, dialect):
    server = await serve(dialect.answer(dialect.text("Hello.")))
    name = model_name(dialect)
    ignored = IGNORED[dialect.provider]
    values = SETTINGS | ({"effort": ""} if dialect.provider == "anthropic" else {})

    page = await save(chat_model=name, **values)
    turn = await chat.run("Hello")

    assert turn.status == "completed"
    (request,) = server.requests
    assert sent(dialect, request.body) == {
        "temperature": 0.3,
        "top_p": 0.8,
        "max_tokens": 20_000,
        **SENT[dialect.provider],
    }
    warning = f"“{name}” ignores these settings: {ignored}."
    assert (warning in said(page)) == bool(ignored)
    changes = await run_in_db_thread(AgentChange.objects.last)()
    assert changes.changes["temperature"] == [None, 0.3]


@pytest.mark.parametrize(
    ("dialect", "effort", "place"),
    [
        ("anthropic", "high", '"output_config": {"effort": "high"}'),
        ("anthropic", "off", '"thinking": {"type": "between_tools"}'),
        ("google", "high", '"thinking_budget": 24576'),
    ],
    indirect=["dialect"],
)
async def test_the_effort_is_said_in_the_vendors_words(serve, chat, dialect, effort, place):
    server = await serve(dialect.answer(dialect.text("Hello.")))
    await save(chat_model=f"{dialect.provider}:{dialect.model_name}", effort=effort)

    await chat.run("Hello")

    assert place in json.dumps(server.requests[0].body)


@pytest.mark.parametrize(
    ("effort", "max_tokens", "thoughts"),
    [
        ("high", "20000", 16_384),
        ("high", "4000", 2_048),
        ("minimal", "2000", 1_024),
        ("max", "1024", None),
    ],
)
async def test_older_claude_models_think_within_the_longest_answer(
    serve, chat, effort, max_tokens, thoughts
):
    """They refuse a request whose thoughts may take all of the answer."""
    server = await serve(ANTHROPIC.answer(ANTHROPIC.text("Hello.")))
    await save(chat_model="anthropic:claude-haiku-4-5", effort=effort, max_tokens=max_tokens)

    assert (await chat.run("Hello")).status == "completed"
    budget = (server.requests[0].body.get("thinking") or {}).get("budget_tokens")
    assert budget == thoughts


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"temperature": "2.5"}, "temperature", "from 0 to 2"),
        ({"top_p": "-1"}, "top_p", "from 0 to 1"),
        ({"max_tokens": "0"}, "max_tokens", "greater than or equal to 1"),
        ({"window": "5"}, "window", "greater than or equal to 1000"),
        ({"effort": "huge"}, "effort", "valid choice"),
        ({"stop_sequences": "a\nb\nc\nd\ne"}, "stop_sequences", "at most 4 stop sequences"),
        ({"fallback_models": "mansion:qwen3"}, "fallback_models", "no chat model named"),
        ({"fallback_models": "local\nlocal"}, "fallback_models", "each fallback model only once"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_words(values, field, words):
    page = await save(**values)

    assert words in str(errors(page)[field])


@pytest.mark.parametrize("field", ["chat_model", "fallback_models"])
@pytest.mark.parametrize(
    "name",
    [
        "house:x@https://evil.example",
        "https://evil.example:SECRET_KEY",
        "evil:qwen3",
        "os.environ:get",
        "openai@evil.example:gpt",
    ],
)
async def test_staff_can_pair_no_key_with_a_host_of_their_own(
    serve, chat, settings, field, name, monkeypatch
):
    """A name is one that the site declares, and what follows it goes to that server alone."""
    server = await serve(OPENAI.answer(OPENAI.text("Hello.")))
    monkeypatch.setenv("SECRET_KEY", "the secret of the site")
    settings.TURNS_CHAT_MODEL = "local"
    settings.TURNS_CHAT_MODEL_ENDPOINTS = {"house": {"base_url": f"{server.url}/v1"}}

    page = await save(rights=["view_agent", "change_agent"], **{field: name})

    agent = await run_in_db_thread(Agent.objects.get)(name="assistant")
    if not name.startswith("house:"):
        assert field in errors(page)
        assert (agent.chat_model, agent.fallback_models) == ("", [])
        return
    await chat.run("help")
    for request in server.requests:
        assert request.body["model"] == name.partition(":")[2]
        assert KEY not in f"{request.line} {request.headers}"


@pytest.fixture
def quick(settings):
    settings.TURNS_CHAT_MODEL_RETRIES = 0


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (REFUSED, "The model's provider refused the server's key"),
        (Response([b"{}"], status="404 Not Found"), "The model is no longer offered"),
        (UNAVAILABLE, "The model is not available"),
        (Response(before=[Hold()]), "The model took too long to answer"),
    ],
)
async def test_another_model_answers_before_the_first_word_and_the_chat_says_so(
    serve, chat, settings, quick, refusal, reason
):
    settings.TURNS_CHAT_MODEL_FIRST_BYTE_TIMEOUT = 0.5
    called = completions.call(1, "call_a", "quick", text="sunny")
    server = await serve(
        refusal,
        OPENAI.answer(called, calls=True),
        OPENAI.answer(OPENAI.text("Sunny.")),
    )
    await save(
        chat_model="anthropic:claude-sonnet-5-5",
        fallback_models="openai:gpt-4o-mini\ngoogle:gemini-3.8-flash",
    )

    turn = await chat.run("How is the weather?")

    # The first one is not asked again in this turn.
    paths = [request.line.split()[1] for request in server.requests]
    assert paths[0].startswith(ANTHROPIC.path)
    assert paths[1:] == [OPENAI.path] * 2
    assert (turn.status, turn.steps) == ("completed", 2)
    sentence = f"{reason}, so “openai:gpt-4o-mini” answers instead."
    assert chat.sink.find("error", code="fallback")["message"] == sentence
    assert turn.usage["requests"] == 3
    seen = await selectors.get_turn(turn_id=turn.id, user=chat.user)
    assert (seen["notice"]["code"], seen["notice"]["message"]) == ("fallback", sentence)


@pytest.mark.parametrize("kind", ["said something", "refused what is asked", "was the last one"])
async def test_no_other_model_answers(serve, chat, quick, kind):
    failing = {
        "said something": ANTHROPIC.unfinished(*ANTHROPIC.open_text("Once upon a"), Break()),
        "refused what is asked": Response([b"{}"], status="400 Bad Request"),
        "was the last one": UNAVAILABLE,
    }[kind]
    last = [UNAVAILABLE] if kind == "was the last one" else []
    server = await serve(failing, *last)
    await save(chat_model="anthropic:claude-sonnet-5-5", fallback_models="openai:gpt-4o-mini")

    turn = await chat.run("Hello")

    assert turn.status == "failed"
    assert len(server.requests) == 1 + len(last)
