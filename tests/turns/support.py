"""What the tests of turns share: a chat for one conversation, tools that do as told, and the protocol's rules."""

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.db.models import Model

from governance import CancelSource, LiveCall, ToolContext, make_tool, registry
from governance import selectors as governance_selectors
from governance.db import run_in_db_thread
from governance.models import Approval
from governance.selectors import CallRow
from tests.faults.checker import OF_CONVERSATIONS
from tests.support import PATIENCE, eventually, with_room
from turns import selectors, services
from turns.core.chat_model import ChatDelta, ChatRequest, ToolCallDelta
from turns.core.messages import Message
from turns.core.repairs import violations
from turns.core.turn_limits import TurnClock
from turns.events import sinks
from turns.models import CancelRequest, Turn
from turns.running import runtime
from turns.testing import Item, ScriptedChatModel

PROMISED_MS = with_room(1_000)  # from a cancel to the end of what it ends (C1)
CHAT_MODEL = "tests.turns.support.current_chat_model"
TERMINAL = {"completed", "cancelled", "failed", "timed_out", "interrupted"}


class _Current:
    """Speaks as whichever script is on now: chat models are made once for each path."""

    def __init__(self) -> None:
        self.model = ScriptedChatModel()

    @property
    def media(self) -> frozenset[str]:
        return frozenset(getattr(self.model, "media", ()))

    def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        return self.model.stream(request)


_current = _Current()


def current_chat_model() -> _Current:
    """The factory that `TURNS_CHAT_MODEL` names in these tests."""
    return _current


class RecordingSink:
    """A sink that remembers what was published, in order."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        self.events.append({**event, "conversation_id": str(conversation_id)})

    def stored(self, conversation_id: UUID) -> list[dict[str, Any]]:
        """The numbered events of a conversation."""
        wanted = str(conversation_id)
        return [e for e in self.events if e["conversation_id"] == wanted and "seq" in e]

    def find(self, type: str, **fields: Any) -> dict[str, Any] | None:
        """The first event of this type with these fields."""
        wanted = {"type": type, **fields}
        return next((e for e in self.events if wanted.items() <= e.items()), None)

    async def until(
        self, type: str, /, *, within: float = PATIENCE, **fields: Any
    ) -> dict[str, Any]:
        return await eventually(lambda: self.find(type, **fields), timeout=within)

    async def until_ended(self, turn_id: UUID, *, within: float = PATIENCE) -> dict[str, Any]:
        return await self.until("turn_end", within=within, turn_id=str(turn_id))


@contextmanager
def recording_sink() -> Iterator[RecordingSink]:
    sink = RecordingSink()
    sinks.register(sink)
    try:
        yield sink
    finally:
        sinks.unregister(sink)


class ChatDriver:
    """One conversation of one user: scripts go in, rows and events come out."""

    def __init__(self, *, user: AbstractUser, conversation_id: UUID, sink: RecordingSink) -> None:
        self.user = user
        self.id = conversation_id
        self.sink = sink

    def use_script(self, *replies: Sequence[Item]) -> ScriptedChatModel:
        """Put a script on for all conversations."""
        _current.model = ScriptedChatModel(*replies)
        return _current.model

    async def say(self, text: str = "go", **how: Any) -> UUID:
        received = await services.receive_message(
            conversation_id=self.id, user=self.user, text=text, **how
        )
        return received.turn_id

    async def play(self, *replies: Sequence[Item]) -> Turn:
        """Run a turn with this script to its end."""
        self.use_script(*replies)
        return await self.run()

    async def begin(self, *replies: Sequence[Item], running: Sequence[str] = ()) -> UUID:
        """Begin a turn with this script; return its id once these calls run, or the first one of its first reply."""
        self.use_script(*replies)
        turn_id = await self.say()
        await self.running(turn_id, *(running or [_first_call(replies[0])]))
        return turn_id

    async def cancel(self, turn_id: UUID, **how: Any) -> services.CancelReceipt:
        how = {"user": self.user, "source": CancelSource.BUTTON, **how}
        return await services.request_cancel(turn_id=turn_id, **how)

    async def cancel_call(self, turn_id: UUID, tool_id: str, **how: Any) -> services.CancelReceipt:
        how = {"user": self.user, "source": CancelSource.BUTTON, **how}
        return await services.request_tool_cancel(turn_id=turn_id, tool_id=tool_id, **how)

    async def run(self, text: str = "go", **how: Any) -> Turn:
        """Say something and wait for the end of the turn."""
        return await self.ended(await self.say(text, **how))

    async def ended(self, turn_id: UUID, *, within: float = PATIENCE) -> Turn:
        """Wait for the end of a turn, and check that everything in the conversation follows the rules."""
        await self.sink.until_ended(turn_id, within=within)
        await self.check()
        turn: Turn = await row(Turn, pk=turn_id)
        return turn

    async def running(self, turn_id: UUID, *tool_ids: str) -> None:
        """Wait until these calls run: they are told as started a little before their bodies begin."""
        for tool_id in tool_ids:
            await self.sink.until("tool_start", turn_id=str(turn_id), tool_id=tool_id)
            await until_begun(turn_id, tool_id)

    async def calls(self, turn_id: UUID) -> dict[str, CallRow]:
        rows = await run_in_db_thread(governance_selectors.calls_of_group)(str(turn_id))
        return {call.call_id: call for call in rows}

    async def decide(self, turn_id: UUID, tool_id: str, **how: Any) -> services.DecisionReceipt:
        how = {"user": self.user, "decision": "approve", **how}
        return await services.decide_tool(turn_id=turn_id, tool_id=tool_id, **how)

    async def asked(self, turn_id: UUID, *tool_ids: str) -> None:
        """Wait until these calls wait for a person."""
        for tool_id in tool_ids:
            await self.sink.until("tool_approval", turn_id=str(turn_id), tool_id=tool_id)

    async def questions(self, turn_id: UUID) -> list[Any]:
        """The questions of a turn as rows, oldest first."""
        rows = Approval.objects.filter(group=str(turn_id)).order_by("pk")
        return list(await run_in_db_thread(lambda: list(rows))())

    async def request(self, turn_id: UUID, tool_id: str = "") -> CancelRequest:
        request: CancelRequest = await row(CancelRequest, turn_id=turn_id, tool_id=tool_id)
        return request

    async def history(self) -> tuple[Message, ...]:
        """The history as the API gives it; it is always valid (H1)."""
        read = await selectors.history(conversation_id=self.id, user=self.user)
        messages = tuple(Message.from_json(message) for message in read["messages"])
        assert violations(messages) == []
        return messages

    async def check(self) -> None:
        """The log is whole and in the protocol's order; what was published is what is stored."""
        # Read first: while the log is read, a turn that goes on publishes more, which is stored by then too.
        published = [
            {k: v for k, v in event.items() if k != "conversation_id"}
            for event in self.sink.stored(self.id)
        ]
        log = await selectors.conversation_events(conversation_id=self.id, after=0)
        assert_protocol(log)
        by_seq = {event["seq"]: event for event in log}
        assert [by_seq[event["seq"]] for event in published] == published


class _ToolGate:
    """Lets coroutines and threads through once it is open; opened from the thread of the event loop."""

    def __init__(self) -> None:
        self.passed = asyncio.Event()
        self.passed_in_thread = threading.Event()

    def open(self) -> None:
        self.passed.set()
        self.passed_in_thread.set()


class FakeTools:
    """Tools whose calls wait until the test lets them go: `held` (cooperative), `stubborn` (swallows cancelling),

    `blocked` (a thread), `quick`, `failing`. `started` lists the calls whose bodies began, `begun` them with their turns.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was, for the next test; what still waits at a gate of the last one keeps it."""
        self.started: list[str] = []
        self.begun: set[tuple[str, str]] = set()
        self._gates: dict[str, _ToolGate] = {}
        self._are_open = False

    def open(self, name: str) -> None:
        self._gate(name).open()

    def open_all(self) -> None:
        self._are_open = True
        for gate in list(self._gates.values()):
            gate.open()

    def _note(self, context: ToolContext) -> None:
        self.started.append(context.call_id)
        self.begun.add((str(context.metadata["turn_id"]), context.call_id))

    def _gate(self, name: str) -> _ToolGate:
        gate = self._gates.setdefault(name, _ToolGate())
        if self._are_open:
            gate.open()
        return gate

    async def quick(self, context: ToolContext, text: str = "done") -> str:
        """Answer at once."""
        self._note(context)
        return text

    async def failing(self, context: ToolContext) -> str:
        """Raise."""
        self._note(context)
        raise RuntimeError("the secret of the tool, token=tulip-mill")

    async def held(self, context: ToolContext, gate: str = "") -> str:
        """Wait for a gate, obeying a cancel."""
        self._note(context)
        await self._gate(gate or context.call_id).passed.wait()
        return f"{context.call_id} finished"

    async def graceful(self, context: ToolContext) -> str:
        """When cancelled, finish at once with a real result."""
        self._note(context)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved just in time"
        return "never"

    async def stubborn(self, context: ToolContext, gate: str = "") -> str:
        """Wait for a gate, swallowing every cancel."""
        self._note(context)
        passed = self._gate(gate or context.call_id).passed
        while not passed.is_set():
            with suppress(asyncio.CancelledError):
                await passed.wait()
        return f"{context.call_id} finished late"

    def blocked(self, context: ToolContext, gate: str = "") -> str:
        """Block a thread until a gate opens."""
        self._note(context)
        self._gate(gate or context.call_id).passed_in_thread.wait()
        return f"{context.call_id} finished late"

    async def noted(self, context: ToolContext, text: str = "same") -> str:
        """Answer with what the script says."""
        self._note(context)
        return text


def fail_in_process(city: str) -> None:
    """Raise."""
    raise LookupError(f"no such city: {city}, password=tulip-mill")


def ignore_sigterm(context: ToolContext) -> str:
    """Run in a worker process, ignore SIGTERM, and never end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    context.progress("deaf")
    while True:
        time.sleep(0.05)


_PROPS = FakeTools()
_TOOLS = [  # made once: the schemas of all of them take longer than many a test
    make_tool(_PROPS.quick),
    make_tool(_PROPS.failing),
    make_tool(_PROPS.held),
    make_tool(_PROPS.graceful),
    make_tool(_PROPS.stubborn, side_effects=True),
    make_tool(_PROPS.blocked),
    make_tool(_PROPS.held, name="alone", concurrency="exclusive"),
    make_tool(_PROPS.noted, name="exempt", loop_exempt=True),
    make_tool(_PROPS.noted, name="asked", approval="once_per_conversation"),
    make_tool(_PROPS.noted, name="asked_too", approval="once_per_conversation"),
    make_tool(_PROPS.held, name="asked_held", approval="always"),
    make_tool(_PROPS.blocked, name="asked_blocked", approval="always"),
    make_tool(ignore_sigterm, name="deaf", isolation="process"),
    make_tool(fail_in_process, isolation="process"),
]


_NOTED = [tool for tool in _TOOLS if tool.isolation != "process"]


def _first_call(reply: Sequence[Item]) -> str:
    return next(item.id for item in reply if isinstance(item, ToolCallDelta))


def find_live_call(turn_id: UUID, tool_id: str) -> LiveCall | None:
    """A call that waits or runs in this process."""
    live = runtime.find_turn(turn_id)
    return live.find_call(tool_id) if live else None


async def until_begun(turn_id: UUID, tool_id: str) -> None:
    """Wait for the body of a call that is told as started here."""

    async def has_begun() -> bool:
        live = find_live_call(turn_id, tool_id)
        if live is not None and live.tool in _NOTED:
            return (str(turn_id), tool_id) in _PROPS.begun
        return live is None or live.body is not None

    await eventually(has_begun)


@contextmanager
def registered_fake_tools() -> Iterator[FakeTools]:
    """Register the tools of `Props` for a test."""
    _PROPS.begin()
    for tool in _TOOLS:
        registry.register(tool)
    try:
        yield _PROPS
    finally:
        _PROPS.open_all()
        for tool in _TOOLS:
            registry.unregister(tool.name)


def run_out_of_time(turn_id: UUID) -> None:
    """Do what the clock of a turn that runs here does at its end."""
    turn = runtime.find_turn(turn_id)
    assert turn is not None
    assert turn.runner is not None
    turn.runner.request_report()


def is_paused(clock: TurnClock) -> bool:
    """Whether the clock of a turn stands still."""
    return clock._pauses > 0


async def row(model: type[Model], **fields: Any) -> Any:
    """Return one row."""
    return await run_in_db_thread(partial(model._default_manager.get, **fields))()


async def in_database(function: Callable[[], Any]) -> Any:
    """Run a function with the ORM from a coroutine."""
    return await run_in_db_thread(function)()


def assert_protocol(log: Iterable[dict[str, Any]]) -> None:
    """Check a conversation's whole log against the protocol: numbers, order of a turn, order of a call."""
    log = list(log)
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    for turn_id in {event["turn_id"] for event in log}:
        named = [event for event in log if event["turn_id"] == turn_id]
        _assert_settled(named)
        events = [event for event in named if event["type"] not in OF_CONVERSATIONS]
        _assert_turn(events)
        by_call: dict[str, list[str]] = {}
        for event in events:
            if "tool_id" in event:
                by_call.setdefault(event["tool_id"], []).append(event["type"])
        for tool_id, types in by_call.items():
            _assert_call(tool_id, types, has_ended=events[-1]["type"] == "turn_end")


def _assert_settled(events: Sequence[dict[str, Any]]) -> None:
    """A call that was given up ends late, once, after its result; that may be said after the turn's end."""
    for tool_id in {event["tool_id"] for event in events if event["type"] == "tool_settled"}:
        types = [event["type"] for event in events if event.get("tool_id") == tool_id]
        assert types[-2:] == ["tool_result", "tool_settled"], (tool_id, types)
        assert types.count("tool_settled") == 1, (tool_id, types)


def _assert_turn(events: Sequence[dict[str, Any]]) -> None:
    types = [event["type"] for event in events]
    assert types[0] == "turn_queued", types
    assert types.count("turn_queued") == 1
    assert types.count("turn_start") <= 1
    assert types.count("turn_ends_after_step") <= 1
    assert types.count("turn_abort") <= 1
    assert types.count("turn_end") <= 1
    if "turn_end" in types:
        assert types[-1] == "turn_end", types
        if "turn_abort" in types:
            assert types[-2] == "turn_abort", types
    if "turn_start" in types:
        assert types[1] == "turn_start", types
    else:
        assert types in (["turn_queued"], ["turn_queued", "turn_abort", "turn_end"])


def _split_questions(types: list[str]) -> tuple[list[list[str]], list[str]]:
    """The questions that people were asked about a call, and what came after them."""
    asked: list[list[str]] = []
    rest = list(types)
    while rest and rest[0] == "tool_approval":
        length = 2 if rest[1:2] == ["tool_decision"] else 1
        asked.append(rest[:length])
        rest = rest[length:]
    return asked, rest


def _assert_call(tool_id: str, types: list[str], *, has_ended: bool) -> None:
    facts = (tool_id, types)
    assert types.count("tool_start") <= 1, facts
    assert types.count("tool_timeout") <= 1, facts
    assert types.count("tool_result") == 1 or (not has_ended and "tool_result" not in types), facts
    start = types.index("tool_start") if "tool_start" in types else len(types)
    assert "tool_queued" not in types[start:], facts
    asked, types = _split_questions([kind for kind in types if kind != "tool_queued"])
    assert all(pair in (["tool_approval", "tool_decision"], ["tool_approval"]) for pair in asked)
    assert all(len(pair) == 2 for pair in asked[:-1]), facts
    if asked and len(asked[-1]) == 1:  # not decided: it never began
        assert "tool_start" not in types, facts
    if "tool_start" in types:
        assert types[0] == "tool_start", facts
    if "tool_result" in types:
        assert types[-1] == "tool_result", facts
    else:
        assert "tool_timeout" not in types, facts
    if "tool_timeout" in types:
        assert types[-2:] == ["tool_timeout", "tool_result"], facts
    forms = [kind for kind in types if kind in ("tool_question", "tool_answer")]
    assert forms == ["tool_question", "tool_answer"] * (len(forms) // 2), facts
    middle = {"tool_progress", "tool_deadline", "sub_agent", *forms}
    assert set(types) <= {"tool_start", "tool_timeout", "tool_result", *middle}, facts
    if middle & set(types):
        assert types[0] == "tool_start", facts
