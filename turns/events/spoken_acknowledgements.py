"""What is said aloud: one short sentence of an agent's chat model. It is no step of a turn and calls no tool (C8)."""

import asyncio
from collections.abc import AsyncGenerator

from governance.db import run_in_db_thread
from turns.agents.lookup import find_agent
from turns.chat_models.catalog import get_chat_model
from turns.conf import app_settings
from turns.core.chat_model import ChatModel, ChatRequest, Reply, StopReason
from turns.core.messages import Message, TextBlock
from turns.core.prompt_markers import HAS_ENDED

TIME_LIMIT = 2.0  # seconds
MAX_TOKENS = 40
MAX_LENGTH = 240  # characters; more is no sentence of forty tokens

_INSTRUCTIONS = (
    "A person has just asked by voice that you end what you were doing, and it has ended. Say so in one sentence of at most ten"
    " words, in the language of what was said. It is read aloud while a microphone listens: do not repeat what was said, and"
    " use no word for stopping or cancelling. Promise nothing, ask nothing, call no tool."
)


async def acknowledge(said: str, *, agent: str) -> str:
    """Return what the agent says after a spoken `said` has come true. Nothing if it is late, too long, or no sentence.

    Raises:
        AgentUnavailable, ChatModelError: nobody can say it.
    """
    chosen = await run_in_db_thread(find_agent)(agent)
    chat_model = get_chat_model(chosen.chat_model or app_settings.CHAT_MODEL)
    asked = Message(role="user", content=(TextBlock(text=f"{HAS_ENDED} The person said: {said}"),))
    request = ChatRequest(
        instructions=_INSTRUCTIONS, messages=(asked,), max_tokens=MAX_TOKENS, may_think=False
    )
    saying = asyncio.create_task(_say(chat_model, request), name="acknowledgement of a voice")
    try:
        done, _late = await asyncio.wait({saying}, timeout=TIME_LIMIT)
    finally:
        saying.cancel()
    if not done:
        saying.add_done_callback(_ignore)
        return ""
    return saying.result()


async def _say(chat_model: ChatModel, request: ChatRequest) -> str:
    reply = Reply()
    stream = chat_model.stream(request)
    try:
        async for delta in stream:
            reply.take(delta)
            if len(reply.text) > MAX_LENGTH:
                return ""
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
    is_whole = reply.stop_reason is StopReason.END and not reply.has_calls
    return " ".join(reply.text.split()) if is_whole else ""


def _ignore(task: "asyncio.Task[str]") -> None:
    if not task.cancelled():
        task.exception()
