"""The checker can fail: each broken promise is found in a history that was spoilt on purpose."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest

from tests.faults.checker import view_violations, violations
from tests.faults.database_snapshot import DatabaseSnapshot

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def event(seq: int, kind: str, **payload) -> dict:
    return {
        "conversation_id": "c",
        "turn_id": "t" if seq <= 8 else "u",
        "seq": seq,
        "type": kind,
        "payload": payload,
        "at": NOW,
    }


def whole() -> dict[str, list[dict]]:
    """Return two turns of one conversation: one with a call, cancelled; one that completed."""
    turn = {
        "id": "t",
        "number": 1,
        "status": "cancelled",
        "epoch": 2,
        "owner_id": "p",
        "ended_at": NOW + timedelta(seconds=1),
    }
    message = {
        "conversation_id": "c",
        "turn_id": "t",
        "role": "user",
        "content": [{"type": "text", "text": "go"}],
        "position": 1,
        "is_streaming": False,
        "at": NOW,
    }
    use = {"type": "tool_use", "id": "a", "name": "affect", "input": {}}
    return {
        "conversations": [{"id": "c", "last_seq": 11}],
        "turns": [turn, {**turn, "id": "u", "number": 2, "status": "completed"}],
        "events": [
            event(1, "turn_queued"),
            event(2, "turn_start"),
            event(3, "message"),
            event(4, "tool_start", tool_id="a"),
            event(5, "tool_progress", tool_id="a"),
            event(6, "tool_result", tool_id="a"),
            event(7, "turn_abort"),
            event(8, "turn_end", status="cancelled"),
            event(9, "turn_queued"),
            event(10, "turn_start"),
            event(11, "turn_end", status="completed"),
        ],
        "messages": [message, {**message, "role": "assistant", "content": [use], "position": 2}],
        "calls": [
            {
                "group": "t",
                "call_id": "a",
                "status": "cancelled",
                "result": "[CANCELLED]",
                "is_error": True,
                "started_at": NOW,
                "ended_at": NOW,
            }
        ],
        "requests": [
            {
                "turn_id": "t",
                "tool_id": "",
                "mode": "now",
                "requested_at": NOW,
                "settled_at": NOW + timedelta(seconds=1),
                "settled_ms": 900,
            }
        ],
        "processes": [{"id": "p", "pid": 1}],
    }


def find(rows: dict[str, list[dict]], **bounds) -> list[str]:
    return violations(DatabaseSnapshot(**rows), **bounds)


def test_a_whole_history_is_not_complained_about():
    assert find(whole(), cancel_within=1.0, effects=["key t a 1"]) == []


def swap(rows, first, second):
    """Let two events change their places, as if they had been written in the other order."""
    events = {row["seq"]: row for row in rows["events"]}
    events[first]["seq"], events[second]["seq"] = second, first


SPOILT = {
    "a number is missing": (lambda rows: rows["events"].pop(4), "last number"),
    "a number counts on": (lambda rows: rows["conversations"][0].update(last_seq=12), "last number"),
    "a turn ends twice": (lambda rows: rows["events"][6].update(type="turn_end", payload={"status": "cancelled"}), "2 turn_end"),
    "a turn never ended": (lambda rows: rows["turns"][0].update(status="running"), "1 turn_end"),
    "an ending that was not told": (lambda rows: rows["events"][7].update(type="error"), "0 turn_end"),
    "another status was told": (lambda rows: rows["events"][7]["payload"].update(status="failed"), "told was"),
    "an event after the end": (lambda rows: swap(rows, 5, 8), "after its end"),
    "two turns run at once": (lambda rows: swap(rows, 8, 10), "while t runs"),
    "the order is not kept": (lambda rows: rows["turns"][1].update(number=0), "starts after"),
    "a call without a row": (lambda rows: rows["calls"].clear(), "has no row"),
    "a call that is still open": (lambda rows: rows["calls"][0].update(status="running"), "is running with"),
    "a call with two results": (lambda rows: rows["events"][4].update(type="tool_result"), "2 results"),
    "a call that started twice": (lambda rows: rows["events"][4].update(type="tool_start"), "2 starts"),
    "a result that was not told": (lambda rows: rows["events"][5].update(type="error"), "0 results"),
    "an old owner's result": (lambda rows: rows["calls"][0].update(ended_at=NOW + timedelta(seconds=9)), "after the turn's end"),
    "an old owner's message": (lambda rows: rows["messages"][1].update(at=NOW + timedelta(seconds=9)), "message was written after"),
    "a message left open": (lambda rows: rows["messages"][1].update(is_streaming=True), "still streams"),
    "a cancel that was forgotten": (lambda rows: rows["requests"][0].update(settled_at=None), "never settled"),
    "a cancel that took long": (lambda rows: rows["requests"][0].update(settled_ms=2000), "took 2000 ms"),
    "a cancel without effect": (lambda rows: rows["requests"][0].update(turn_id="u"), "and yet completed"),
    "a history with a hole": (lambda rows: rows["messages"].append({**rows["messages"][0], "content": [], "position": 3}), "is empty"),
}  # fmt: skip


@pytest.mark.parametrize("fault", SPOILT)
def test_a_broken_promise_is_found(fault):
    rows = deepcopy(whole())
    spoil, words = SPOILT[fault]
    spoil(rows)
    assert any(words in sentence for sentence in find(rows, cancel_within=1.0))


def test_what_still_runs_is_found_where_all_should_be_over():
    rows = whole()
    rows["turns"][1]["status"] = "queued"
    assert any("still queued" in sentence for sentence in find(rows))
    assert not any("still queued" in sentence for sentence in find(rows, is_settled=False))


def test_an_effect_that_happened_twice_is_found():
    effects = ["key t a 1", "key t a 2", "key t b 1"]
    assert find(whole(), effects=effects) == ["call a of turn t: had its effect 2 times"]


def test_a_client_that_missed_repeated_or_invented_an_event_is_found():
    record = DatabaseSnapshot(**whole())
    seen = [{"turn_id": e["turn_id"], "seq": e["seq"], "type": e["type"]} for e in record.events]
    assert view_violations(seen, record) == []
    assert view_violations(seen[:3] + seen[4:], record) == ["the client saw 3 and then 5"]
    assert view_violations(seen[:3] + seen[2:], record) == ["the client saw 3 and then 3"]
    seen[2] = {**seen[2], "type": "tool_start"}
    assert view_violations(seen, record) == ["the client saw 3 tool_start, which is not stored so"]
