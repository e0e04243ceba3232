"""What the tests of sub-agents share: a chat model that answers each message by a script, and rows."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from uuid import UUID

from governance.db import run_in_db_thread
from tests.support import PATIENCE, eventually
from tests.turns import support
from tests.turns.support import ChatDriver, in_database
from turns.core.chat_model import ChatDelta, ChatRequest
from turns.models import CancelRequest, Conversation, Turn
from turns.testing import Item, ScriptedChatModel, call

Script = Sequence[Sequence[Item]]


class ScriptedAgents:
    """Answers by what was said: each message has a script, the answers since then tell how far it has come.

    A text that no person wrote is found by how it begins. `requests` has what was asked, by message.
    """

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.requests: dict[str, list[ChatRequest]] = {said: [] for said in scripts}
        self._models = {said: list(script) for said, script in scripts.items()}

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatDelta, None]:
        texts, place = _last_said(request)
        said = next(key for text in reversed(texts) for key in self._models if _is_meant(key, text))
        done = sum(message.role == "assistant" for message in request.messages[place + 1 :])
        self.requests[said].append(request)
        async for delta in ScriptedChatModel(self._models[said][done]).stream(request):
            yield delta


def _is_meant(key: str, text: str) -> bool:
    return text == key or (key.startswith("[") and text.startswith(key))


def _last_said(request: ChatRequest) -> tuple[list[str], int]:
    for place in range(len(request.messages) - 1, -1, -1):
        message = request.messages[place]
        if message.role == "user" and message.texts:
            return [block.text for block in message.texts], place
    raise AssertionError("nobody has said anything")


def use_scripts(chat: ChatDriver, **scripts: Script) -> ScriptedAgents:
    """Put scripts on, one for each message (with spaces for underscores)."""
    agents = ScriptedAgents({said.replace("_", " "): script for said, script in scripts.items()})
    support._current.model = agents  # type: ignore[assignment]
    return agents


def ask(id: str, message: str, agent: str = "") -> Item:
    return call(id, "sessions_ask", agent=agent, message=message)


def spawn(id: str, message: str, agent: str = "") -> Item:
    return call(id, "sessions_spawn", agent=agent, message=message)


async def child(message: str, **fields: Any) -> Turn:
    """The turn of the sub-agent that was told this, once it is there."""

    def find() -> Turn | None:
        turns = Turn.objects.filter(user_message=message, parent__isnull=False, **fields)
        return turns.select_related("conversation", "parent").first()

    return await eventually(run_in_db_thread(find))


async def running(message: str) -> Turn:
    return await child(message, status="running")


async def ended(turn: Turn | UUID, *, within: float = PATIENCE) -> Turn:
    """The turn once it has ended."""
    pk = turn.pk if isinstance(turn, Turn) else turn

    def find() -> Turn | None:
        return Turn.objects.filter(pk=pk, ended_at__isnull=False).first()

    return await eventually(run_in_db_thread(find), timeout=within)


async def request_of(turn: Turn) -> CancelRequest:
    found: CancelRequest = await in_database(
        lambda: CancelRequest.objects.get(turn=turn, tool_id="")
    )
    return found


async def report_turns(conversation_id: UUID) -> list[Turn]:
    """The turns that carry reports to a conversation."""
    turns = Turn.objects.filter(conversation=conversation_id, source="sub_agent").order_by("number")
    return await in_database(lambda: list(turns))


async def conversation_of(turn: Turn) -> Conversation:
    found: Conversation = await in_database(lambda: Conversation.objects.get(turns=turn))
    return found
