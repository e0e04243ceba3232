"""Functions with which the tests of a Django project run whole turns with its tools, in the test database.

turn = run_turn([call("c1", "order_status", order=7)], [text("It is on its way.")], user=ada)
assert turn.calls[0].result == "Order 7 is on its way."

`TestCase` and `pytest.mark.django_db` run a test in a transaction, whose rows only the test's own thread sees. All
database work, of Turnkeeper and of the tools, therefore runs in that thread (`one_database_thread`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from uuid import UUID

from asgiref.sync import async_to_sync
from django.contrib.auth.models import AbstractBaseUser
from django.db import connections, transaction
from django.test import TestCase, override_settings

from governance import CancelSource, Isolation, registry, selectors
from governance.db import (
    database_alias,
    database_connection,
    in_test_thread,
    run_in_query_thread,
)
from turns import services
from turns.chat_models.catalog import standing_in
from turns.core.events import ToolApproval, TurnEnd
from turns.events import sinks
from turns.models import Message, Turn
from turns.queueing.dispatchers import EMBEDDED
from turns.running import runtime
from turns.testing.scripts import Item, ScriptedChatModel

__all__ = ["FinishedCall", "FinishedTurn", "arun_turn", "one_database_thread", "run_turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCall:
    """A call that has ended. `status` and `error_type` are as in the API; `result` is the text that the model read."""

    id: str
    tool_name: str
    status: str
    error_type: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTurn:
    """A turn that has ended. `answer` is the agent's text, and `events` are the events that pages received."""

    id: UUID
    conversation_id: UUID
    status: str
    answer: str
    calls: tuple[FinishedCall, ...]
    events: tuple[dict[str, Any], ...]


@contextmanager
def one_database_thread() -> Iterator[None]:
    """Run all database work of tools and of the framework in the thread of the test, inside this context manager.

    Plain functions run in that thread too, including those for worker processes. Callbacks of `on_commit` run
    as soon as the rows are written. `run_turn` uses this context manager automatically if the test needs it.

    Use it around code that calls coroutines through `async_to_sync`, as Django's test client does, and in asynchronous
    tests of a `TestCase`.
    """
    with in_test_thread(
        partial(TestCase.captureOnCommitCallbacks, using=database_alias(), execute=True)
    ):
        yield


async def arun_turn(
    *replies: Sequence[Item],
    user: AbstractBaseUser,
    message: str = "Go.",
    agent: str = "",
    conversation_id: UUID | None = None,
    cancel_on: str = "",
    approve: bool = True,
    within: float = 10.0,
) -> FinishedTurn:
    """Run a turn in which the chat model gives these replies, and return it when it has ended.

    Args:
        replies: one list of items for each request to the chat model. They replace the agent's chat model.
        user: the user who sends the message.
        message: the message.
        agent: the name of the agent. If it is empty, the default agent answers.
        conversation_id: the conversation of an earlier turn, to continue it.
        cancel_on: the type of an event, such as "tool_start". The user cancels the turn at the first such event.
        approve: the user's decision on each call that needs approval.
        within: seconds until the test fails.

    Raises:
        TimeoutError: the turn has not ended within this time.
        AssertionError: the chat model received more requests than there are replies.
        ValueError: a call of the script cannot be cancelled, because it blocks the only thread.
    """
    model = ScriptedChatModel(*replies)
    with ExitStack() as stack:
        if await run_in_query_thread(_needs_one_thread)():
            _refuse_cancels_of_functions(model, cancel_on)
            stack.enter_context(one_database_thread())
        else:
            stack.enter_context(_connections_end_early())
        stack.enter_context(standing_in(model))
        stack.enter_context(
            override_settings(TURNS_DISPATCHER=EMBEDDED)
        )  # in this process instead of a runner
        async with _Person(user, cancel_on=cancel_on, approve=approve).watching() as person:
            if conversation_id is None:
                conversation_id = (await services.create_conversation(user=user, agent=agent)).id
            async with asyncio.timeout(within):
                turn_id = await person.say(conversation_id, message)
            status, answer, calls = await _read(turn_id)
    if len(model.requests) > len(replies):
        raise AssertionError(
            f"The chat model received {len(model.requests)} requests but has only {len(replies)} replies. Perhaps the"
            " last reply calls a tool."
        )
    return FinishedTurn(
        id=turn_id,
        conversation_id=conversation_id,
        status=status,
        answer=answer,
        calls=calls,
        events=tuple(person.events),
    )


run_turn = async_to_sync(arun_turn)
"""Run a turn like `arun_turn`, from a synchronous test."""


class _Person:
    """A simulated user who sends a message and whose page receives the events."""

    def __init__(self, user: AbstractBaseUser, *, cancel_on: str, approve: bool) -> None:
        self.events: list[dict[str, Any]] = []
        self._user = user
        self._cancel_on = cancel_on
        self._decision: Literal["approve", "deny"] = "approve" if approve else "deny"
        self._heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["_Person"]:
        """Receive events inside this context manager; on exit, stop the runtime of this event loop."""
        sinks.register(self)
        try:
            yield self
        finally:
            sinks.unregister(self)
            await runtime.stop(grace=0)

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """Queue an event for `say`, as the sink of the page."""
        self._heard.put_nowait(event)

    async def say(self, conversation_id: UUID, message: str) -> UUID:
        """Send a message and respond as a user until the turn has ended; return the turn's id."""
        received = await services.receive_message(
            conversation_id=conversation_id, user=self._user, text=message
        )
        while not (self.events and self.events[-1]["type"] == TurnEnd.type):
            event = await self._heard.get()
            if event["turn_id"] == str(received.turn_id):
                self.events.append(event)
                await self._react(received.turn_id, event)
        return received.turn_id

    async def _react(self, turn_id: UUID, event: dict[str, Any]) -> None:
        if event["type"] == self._cancel_on:
            self._cancel_on = ""
            await services.request_cancel(
                turn_id=turn_id, user=self._user, source=CancelSource.BUTTON
            )
        elif event["type"] == ToolApproval.type:
            await services.decide_tool(
                turn_id=turn_id, tool_id=event["tool_id"], user=self._user, decision=self._decision
            )


def _needs_one_thread() -> bool:
    """Return whether other connections could not see the rows of the test, or could not wait for its locks."""
    connection = database_connection()
    is_in_memory = connection.vendor == "sqlite" and connection.is_in_memory_db()
    return is_in_memory or not transaction.get_autocommit(using=database_alias())


@contextmanager
def _connections_end_early() -> Iterator[None]:
    """Close Turnkeeper's connections early, because PostgreSQL cannot drop a test database with open connections."""
    configured = connections.settings[database_alias()]
    max_age, configured["CONN_MAX_AGE"] = configured["CONN_MAX_AGE"], 0
    try:
        yield
    finally:
        configured["CONN_MAX_AGE"] = max_age


def _refuse_cancels_of_functions(model: ScriptedChatModel, cancel_on: str) -> None:
    plain = [
        name
        for name in sorted(model.tool_names)
        if name in registry and registry.get(name).isolation is not Isolation.ASYNC
    ]
    if cancel_on and plain:
        raise ValueError(
            f"{plain[0]!r} is a plain function, which runs in the one thread of this test, so nothing can cancel it there."
            " Cancel it in a test without a transaction (TransactionTestCase, django_db(transaction=True)), on"
            " PostgreSQL or a SQLite file."
        )


@run_in_query_thread
def _read(turn_id: UUID) -> tuple[str, str, tuple[FinishedCall, ...]]:
    answers = Message.objects.filter(turn=turn_id, role="assistant").order_by("position")
    messages = [
        block["text"] for answer in answers for block in answer.content if block["type"] == "text"
    ]
    calls = tuple(
        FinishedCall(
            id=row.call_id,
            tool_name=row.tool_name,
            status=row.status,
            error_type=row.error_type or "",
            result=row.result,
        )
        for row in selectors.calls_of_group(str(turn_id))
    )
    return Turn.objects.get(pk=turn_id).status, "".join(messages), calls
