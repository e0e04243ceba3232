"""Conversations outlive the context window of their model: old results go first, then old turns; rows keep everything."""

from contextlib import contextmanager
from itertools import pairwise

import pytest

from governance import make_tool, registry
from tests.turns.chat_models.counting import CountingServer
from tests.turns.chat_models.dialects import ANTHROPIC, KEY, OPENAI
from tests.turns.chat_models.test_prompts import continues
from tests.turns.support import in_database
from tests.turns.tools_of_servers import many_tools
from turns.chat_models.catalog import get_chat_model
from turns.chat_models.fallbacks import FallbackChatModel
from turns.chat_models.providers import close_connections
from turns.core.events import PromptChanged
from turns.models import Agent, Message

pytestmark = pytest.mark.django_db(transaction=True)

TOOLS = 59
PAGE = "page {page}: " + "lorem ipsum dolor " * 140


async def look_up(page: int) -> str:
    """Look up a page of a long book, in which everything is written that anybody may want to know about the matter."""
    return PAGE.format(page=page)


@contextmanager
def tools_in_all(number):
    """Have that many tools, the book among them."""
    registry.register(make_tool(look_up))
    try:
        with many_tools(number - len(registry)):
            yield
    finally:
        registry.unregister("look_up")


@pytest.fixture(params=[ANTHROPIC, OPENAI], ids=["anthropic", "openai"])
def dialect(request):
    return request.param


@pytest.fixture
async def counting(dialect, monkeypatch, settings):
    """Start a server with a window of so many tokens, and point the provider to it."""
    servers = []

    async def start(window, *, tool="look_up"):
        server = await CountingServer(dialect, window, tool=tool).__aenter__()
        servers.append(server)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        settings.TURNS_CHAT_MODEL_BASE_URL = f"{server.url}/v1"
        return server

    yield start
    await close_connections()
    for server in servers:
        await server.__aexit__()


async def set_window(tokens):
    await in_database(lambda: Agent.objects.update(window=tokens))


async def talk(on, turns):
    """Say something that many times; every turn completes."""
    return [await on.run(f"What is on page {place + 1}?") for place in range(turns)]


def changes(on):
    return [event["reason"] for event in on.sink.events if event["type"] == PromptChanged.type]


def breaks(server, dialect):
    """How often an accepted request does not continue the one before."""
    accepted = [request.body for request in server.requests if request not in server.refused]
    bodies = [body for body in accepted if body.get("tools")]  # all but summaries
    joins = dialect is OPENAI
    return sum(not continues(*pair, joins_texts=joins) for pair in pairwise(bodies))


async def test_a_conversation_lives_on_in_a_small_window(counting, dialect, on):
    server = await counting(12_000)
    await set_window(12_000)
    with tools_in_all(TOOLS):
        turns = await talk(on, 60)

    assert {turn.status for turn in turns} == {"completed"}
    assert {turn.usage["context_window"] for turn in turns} == {12_000}
    assert max(turn.usage["context_tokens"] for turn in turns) <= 12_000
    steps = [event["usage"] for event in on.sink.events if event.get("usage") and "step" in event]
    assert len(steps) == 60  # the message of each step with calls
    assert max(usage["context_tokens"] for usage in steps) > 8_000
    assert {len(request.body.get("tools", ())) for request in server.requests} == {TOOLS, 0}
    assert server.refused == []
    assert server.broken == []
    assert server.most > 8_000
    assert set(changes(on)) == {"clear", "summary"}
    assert breaks(server, dialect) == len(changes(on))
    assert (server.thoughts_sent > 60) == (dialect is ANTHROPIC)
    assert await in_database(Message.objects.filter(role="user").count) == 60


async def test_with_fewer_tools_a_smaller_window_is_enough(counting, on, settings):
    settings.TURNS_MAX_TOOL_TOKENS = 2_000
    server = await counting(8_000)
    await set_window(8_000)
    with tools_in_all(TOOLS):
        turns = await talk(on, 60)

    assert {turn.status for turn in turns} == {"completed"}
    assert server.refused == []
    assert server.broken == []


async def test_an_unknown_window_is_learned_from_refusals(counting, dialect, on):
    """The model is known to have a larger one, as that of another server by the same name may have."""
    server = await counting(12_000)
    with tools_in_all(TOOLS):
        turns = await talk(on, 25)

    assert {turn.status for turn in turns} == {"completed"}
    assert 0 < len(server.refused) < 8
    assert server.broken == []
    assert breaks(server, dialect) == len(changes(on))


async def test_the_window_is_what_is_known_about_the_model(serve, monkeypatch):
    await serve()
    known, unknown = "anthropic:claude-sonnet-5-5", "openai:qwen3:8b"
    assert await get_chat_model(known).context_window() >= 200_000
    assert await get_chat_model(unknown).context_window() is None
    assert await FallbackChatModel([known, unknown]).context_window() >= 200_000
    monkeypatch.delenv("GOOGLE_API_KEY")
    without_key = get_chat_model("google:gemini-2.5-flash")
    assert await without_key.context_window() is None
    assert await FallbackChatModel(["nowhere:x"]).context_window() is None
