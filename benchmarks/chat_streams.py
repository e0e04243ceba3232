"""Rows of the providers: what a streamed chunk costs next to the vendor's own SDK. They also show how soon a cancel
closes the provider's socket. Import it once Django is set up."""

import asyncio
import os
from functools import partial

from anthropic import AsyncAnthropic
from django.test.utils import override_settings
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from benchmarks.measurement import Effort, interleave, spread
from benchmarks.provider_server import CHAT_MODEL, ProviderServer
from benchmarks.rows import Bar, Row, latency, per_call
from benchmarks.whole_turns import create_user
from governance import CancelSource
from turns import services
from turns.chat_models.catalog import close_connections, get_chat_model
from turns.core.chat_model import ChatModel, ChatRequest, TextDelta
from turns.core.messages import Message, TextBlock
from turns.running import runtime

CHUNKS = 400
BAR_AGENT = Bar(most_ratio=1.2)
NAME = f"anthropic:{CHAT_MODEL}"
_KEY = "only-for-a-benchmark"
_ROUNDS = 4  # a stream of 400 chunks is as good as many rounds of the core


async def measure(effort: Effort) -> list[Row]:
    """Return the rows."""
    os.environ["ANTHROPIC_API_KEY"] = _KEY
    return [*await _chunks(effort), await _closing(effort)]


async def _chunks(effort: Effort) -> list[Row]:
    """Stream the same answer in turn by the SDK, by the chat model on top, and by a library's agent."""
    async with ProviderServer(chunks=CHUNKS) as server:
        os.environ["ANTHROPIC_BASE_URL"] = server.url
        sdk = AsyncAnthropic(api_key=_KEY, base_url=server.url, max_retries=0)
        chat_model = get_chat_model(NAME)
        agent = Agent(AnthropicModel(CHAT_MODEL, provider=AnthropicProvider(anthropic_client=sdk)))
        measured = await interleave(
            {
                "sdk": lambda: _by_sdk(sdk),
                "ours": lambda: _by_chat_model(chat_model),
                "agent": lambda: _by_agent(agent),
            },
            rounds=max(effort.rounds // _ROUNDS, 1),
            warm_ups=effort.warm_ups,
        )
        await sdk.close()
        await close_connections()
    row = partial(per_call, calls=CHUNKS)
    what = f"a streamed chunk, {CHUNKS} in an answer"
    of_sdk, of_agent = f"{what}; bare: the vendor's SDK", f"{what}; bare: pydantic-ai's own stream"
    return [
        row("chunk", of_sdk, measured["ours"], bare=measured["sdk"]),
        row("chunk_agent", of_agent, measured["ours"], bare=measured["agent"], bar=BAR_AGENT),
    ]


async def _by_sdk(sdk: AsyncAnthropic) -> None:
    stream = await sdk.messages.create(
        model=CHAT_MODEL,
        max_tokens=4096,
        messages=[{"role": "user", "content": "say many words"}],
        stream=True,
    )
    pieces = [event async for event in stream if event.type == "content_block_delta"]
    _require(len(pieces))


async def _by_chat_model(chat_model: ChatModel) -> None:
    said = Message(role="user", content=(TextBlock(text="say many words"),))
    request = ChatRequest(instructions="", messages=(said,), tools=())
    pieces = [piece async for piece in chat_model.stream(request) if isinstance(piece, TextDelta)]
    _require(sum(piece.text.count("word") for piece in pieces))


async def _by_agent(agent: Agent) -> None:
    async with agent.run_stream("say many words") as answer:
        said = [piece async for piece in answer.stream_text(delta=True, debounce_by=None)]
    _require(sum(piece.count("word") for piece in said))


async def _closing(effort: Effort) -> Row:
    """Cancel whole turns in the middle of their answer; the server says when its reader went away."""
    delays = []
    async with ProviderServer(chunks=5, holds=True) as server:
        os.environ["ANTHROPIC_BASE_URL"] = server.url
        with override_settings(TURNS_CHAT_MODEL=NAME):
            user = await create_user("watcher")
            for _ in range(effort.cancels + 1):
                conversation = await services.create_conversation(user=user)
                received = await services.receive_message(
                    conversation_id=conversation.id, user=user, text="say many words"
                )
                async with asyncio.timeout(60):
                    await server.held.wait()
                server.held.clear()
                asked = asyncio.get_running_loop().time()
                await services.request_cancel(
                    turn_id=received.turn_id, user=user, source=CancelSource.BUTTON
                )
                async with asyncio.timeout(60):
                    delays.append(await server.gone.get() - asked)
            await runtime.stop(grace=0)
    what = "cancel → the provider's socket is closed, mid-text"
    return latency("cancel_provider", what, spread(delays[1:]))


def _require(pieces: int) -> None:
    if pieces != CHUNKS:
        raise RuntimeError(f"{pieces} chunks came, not {CHUNKS}.")
