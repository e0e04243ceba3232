"""The checker of histories: what a site has written down, held against what is promised, whatever was done to it.

It looks at the tables alone. It shares no code with what wrote them, except for the rules of a valid history (H1).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from tests.faults.database_snapshot import ACTIVE, LIVE, DatabaseSnapshot, Row
from turns.core.messages import Message, ToolResultBlock
from turns.core.repairs import violations as broken_rules

OF_CONVERSATIONS = {
    "history_repaired",
    "conversation_parked",
    "conversation_resumed",
    "cancel_acknowledged",
    "tool_settled",
}
OPEN_CALLS = ("pending", "awaiting_approval", "running", "cancelling")
SLACK = timedelta(
    seconds=2
)  # between the moment of an ending and the lock under which it is written


def violations(
    record: DatabaseSnapshot,
    *,
    is_settled: bool = True,
    cancel_within: float | None = None,
    cancelled_since: datetime | None = None,
    effects: Sequence[str] = (),
    slack: timedelta = SLACK,
) -> list[str]:
    """Return one sentence for each broken promise; an empty list means that all were kept.

    `is_settled`: nothing may wait or run any more. `cancel_within`: seconds from a cancel that was acknowledged to the
    end of what it was about, for those since `cancelled_since`. `effects`: what tools did in the world, "key turn call
    pid" for each time. `slack`: how far the clocks of processes may be apart, which date what they write.
    """
    found = [
        *_numbers(record),
        *_turns(record),
        *_runs(record),
        *_calls(record),
        *_late_writes(record, slack=slack),
        *_cancels(record, within=cancel_within, since=cancelled_since),
        *_histories(record),
        *_repeated(effects),
    ]
    if is_settled:
        found += [
            f"turn {turn['id']}: still {turn['status']}"
            for turn in record.turns
            if turn["status"] in ACTIVE
        ]
    return found


def view_violations(events: Sequence[Mapping[str, Any]], record: DatabaseSnapshot) -> list[str]:
    """Return what is wrong with the events that one client saw: none twice, none missing, as they are stored (G9)."""
    found = []
    stored = {
        (str(row["turn_id"]), row["seq"]): row["type"]
        for row in record.events
        if not events or str(row["turn_id"]) in {event["turn_id"] for event in events}
    }
    for before, after in pairwise(events):
        if after["seq"] != before["seq"] + 1:
            found.append(f"the client saw {before['seq']} and then {after['seq']}")
    for event in events:
        if stored.get((event["turn_id"], event["seq"])) != event["type"]:
            found.append(f"the client saw {event['seq']} {event['type']}, which is not stored so")
    return found


def _numbers(record: DatabaseSnapshot) -> Iterator[str]:
    """The numbers of a conversation's events have no gap."""
    for conversation in record.conversations:
        log = record.log_by_conversation.get(str(conversation["id"]), [])
        numbers = [event["seq"] for event in log]
        if numbers != list(range(1, len(log) + 1)) or conversation["last_seq"] != len(log):
            yield (
                f"conversation {conversation['id']}: last number {conversation['last_seq']}, "
                f"stored {numbers[:3]}…{numbers[-3:]} ({len(log)})"
            )


def _turns(record: DatabaseSnapshot) -> Iterator[str]:
    """A turn is queued once, starts once at most, ends once, and nothing comes after its end (C1, H1)."""
    for turn_id, turn in record.turns_by_id.items():
        types = [event["type"] for event in record.log_by_turn.get(turn_id, [])]
        has_ended = turn["status"] not in ACTIVE
        if types[:1] != ["turn_queued"] or types.count("turn_queued") != 1:
            yield f"turn {turn_id}: begins with {types[:2]}"
        for kind in ("turn_start", "turn_ends_after_step", "turn_abort"):
            if types.count(kind) > 1:
                yield f"turn {turn_id}: {types.count(kind)} times {kind}"
        if types.count("turn_end") != has_ended:
            yield f"turn {turn_id}: is {turn['status']} and has {types.count('turn_end')} turn_end"
        yield from _after_the_end(turn_id, types)
        if has_ended and turn["ended_at"] is None:
            yield f"turn {turn_id}: has ended, but nobody knows when"
        for event in record.log_by_turn.get(turn_id, []):
            if event["type"] == "turn_end" and event["payload"]["status"] != turn["status"]:
                yield f"turn {turn_id}: is {turn['status']}, told was {event['payload']['status']}"
        if turn["status"] in LIVE and turn["owner_id"] is None:
            yield f"turn {turn_id}: is {turn['status']} and nobody owns it"


def _after_the_end(turn_id: str, types: Sequence[str]) -> Iterator[str]:
    if "turn_end" in types:
        after = types[types.index("turn_end") + 1 :]
        # what is said of the whole conversation is told under the latest turn
        if any(kind not in OF_CONVERSATIONS for kind in after):
            yield f"turn {turn_id}: {after} after its end"


def _runs(record: DatabaseSnapshot) -> Iterator[str]:
    """Of a conversation's turns one runs at a time, in the order in which they were queued (G6)."""
    for conversation_id, log in record.log_by_conversation.items():
        running: str | None = None
        latest = 0
        for event in log:
            turn_id = str(event["turn_id"])
            if event["type"] == "turn_start":
                number = record.turn(turn_id)["number"]
                if running is not None:
                    yield f"conversation {conversation_id}: {turn_id} starts while {running} runs"
                if number <= latest:
                    yield f"conversation {conversation_id}: turn {number} starts after {latest}"
                running, latest = turn_id, number
            elif event["type"] == "turn_end" and turn_id == running:
                running = None


def _calls(record: DatabaseSnapshot) -> Iterator[str]:
    """Each call has one row, one start at most, and one result once its turn has ended (G4, G7)."""
    for turn_id, turn in record.turns_by_id.items():
        log = record.log_by_turn.get(turn_id, [])
        starts = _counted(log, "tool_start")
        results = _counted(log, "tool_result")
        known = {call["call_id"]: call for call in record.calls_of(turn_id)}
        for call_id in _asked_for(record, turn_id) - known.keys():
            yield f"turn {turn_id}: the call {call_id} has no row"
        has_ended = turn["status"] not in ACTIVE
        for call_id, call in known.items():
            name = f"call {call_id} of turn {turn_id}"
            if starts[call_id] > 1 or results[call_id] > 1:
                yield f"{name}: {starts[call_id]} starts, {results[call_id]} results"
            is_open = call["status"] in OPEN_CALLS
            if has_ended and (is_open or results[call_id] != 1):
                yield f"{name}: is {call['status']} with {results[call_id]} results, turn ended"
            if not is_open and results[call_id] != 1:
                yield f"{name}: has ended and {results[call_id]} results were told"


def _late_writes(record: DatabaseSnapshot, *, slack: timedelta) -> Iterator[str]:
    """Whoever lost a turn writes nothing more: not into its messages, not into its calls (G5)."""
    for turn_id, turn in record.turns_by_id.items():
        if turn["ended_at"] is None:
            continue
        limit = turn["ended_at"] + slack
        for call in record.calls_of(turn_id):
            if any(at is not None and at > limit for at in (call["started_at"], call["ended_at"])):
                yield f"call {call['call_id']} of turn {turn_id}: written after the turn's end"
        for message in record.messages:
            if str(message["turn_id"]) != turn_id:
                continue
            if message["at"] > limit:
                yield f"turn {turn_id}: a message was written after its end"
            if message["is_streaming"]:
                yield f"turn {turn_id}: has ended, and a message still streams"


def _cancels(
    record: DatabaseSnapshot, *, within: float | None, since: datetime | None
) -> Iterator[str]:
    """A cancel that was stored comes true, in time, and is never answered with success (G1, C1)."""
    for request in record.requests:
        turn = record.turn(str(request["turn_id"]))
        name = f"cancel of {request['tool_id'] or 'turn'} in {turn['id']}"
        if turn["status"] in ACTIVE:
            continue
        is_bounded = since is None or request["requested_at"] >= since
        if request["settled_at"] is None:
            yield f"{name}: never settled"
        elif within is not None and is_bounded and request["settled_ms"] > within * 1000:
            yield f"{name}: took {request['settled_ms']} ms, not {within} s"
        if not request["tool_id"] and request["mode"] == "now" and turn["status"] == "completed":
            yield f"{name}: acknowledged, and yet completed"


def _histories(record: DatabaseSnapshot) -> Iterator[str]:
    """What a model would read of the turns that have ended keeps every rule, as it is stored (G4, H1)."""
    results = {
        (call["group"], call["call_id"]): ToolResultBlock(
            tool_use_id=call["call_id"], content=call["result"], is_error=call["is_error"]
        )
        for call in record.calls
        if call["status"] not in OPEN_CALLS
    }
    for conversation in record.conversations:
        messages = []
        for row in _messages(record, conversation):
            message = Message.from_json(
                {"role": row["role"], "content": row["content"], "turn_id": str(row["turn_id"])}
            )
            messages.append(message)
            uses = [(str(row["turn_id"]), use.id) for use in message.tool_uses]
            found = tuple(results[key] for key in uses if key in results)
            if found:
                messages.append(Message(role="user", content=found, turn_id=message.turn_id))
        for rule in broken_rules(messages):
            yield f"conversation {conversation['id']}: {rule}"


def _messages(record: DatabaseSnapshot, conversation: Row) -> list[Row]:
    ended = {turn["id"] for turn in record.turns if turn["status"] not in ACTIVE}
    rows = [
        row
        for row in record.messages
        if row["conversation_id"] == conversation["id"] and row["turn_id"] in ended
    ]
    return sorted(rows, key=lambda row: row["position"])


def _repeated(effects: Sequence[str]) -> Iterator[str]:
    """A call has its effect once at most (G7)."""
    times = Counter(tuple(effect.split()[-3:-1]) for effect in effects)
    for (turn_id, call_id), count in times.items():
        if count > 1:
            yield f"call {call_id} of turn {turn_id}: had its effect {count} times"


def _counted(log: Sequence[Row], kind: str) -> Counter[str]:
    return Counter(event["payload"]["tool_id"] for event in log if event["type"] == kind)


def _asked_for(record: DatabaseSnapshot, turn_id: str) -> set[str]:
    return {
        block["id"]
        for row in record.messages
        if str(row["turn_id"]) == turn_id
        for block in row["content"]
        if block.get("type") == "tool_use"
    }
