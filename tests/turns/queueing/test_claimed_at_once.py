"""A turn that nobody comes before is claimed with its message. Its rows are those of one that has queued."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import AbstractUser
from django.utils import timezone

from tests.turns.row_factory import RowFactory, said
from turns.agents.lookup import read_config
from turns.core.ports import ClaimedTurn
from turns.history import prompts
from turns.models import Agent, Conversation, Event, Message, Process, Turn
from turns.processes import process_registry
from turns.queueing import queue

pytestmark = pytest.mark.django_db(transaction=True)

MOMENTS = {"id", "conversation_id", "queued_at", "dispatched_at", "started_at"}


@pytest.fixture
def process(transactional_db: None) -> Process:
    return process_registry.register()


def put_in(place: RowFactory, process: Process | None, **how: Any) -> queue.Enqueued:
    details = {"text": "hello", "source": "typed", "client_id": "m1", **how}
    return queue.enqueue(place.id, process=process, **details)


def claim(place: RowFactory, process: Process) -> queue.Claimed:
    claimed = queue.claim(place.id, process=process)
    assert claimed is not None
    return claimed


def rows_of(conversation_id: UUID) -> dict[str, Any]:
    """What is stored of a conversation with one turn, without its ids and moments."""
    [turn] = Turn.objects.filter(conversation=conversation_id).values()
    counted = ("last_seq", "last_position", "last_number", "title")
    said = Message.objects.filter(conversation=conversation_id).order_by("position")
    told = Event.objects.filter(conversation=conversation_id).order_by("seq")
    return {
        "turn": {name: value for name, value in turn.items() if name not in MOMENTS},
        "conversation": Conversation.objects.values(*counted).get(pk=conversation_id),
        "messages": list(said.values("position", "step", "role", "content", "is_streaming")),
        "events": list(told.values("seq", "type", "payload")),
    }


def without_ids(claimed: ClaimedTurn) -> ClaimedTurn:
    nowhere = UUID(int=0)
    return replace(
        claimed, id=nowhere, conversation_id=nowhere, is_new=False, prompt=None, agent_config=None
    )


@pytest.mark.parametrize("source", ["typed", "voice"])
def test_both_ways_store_the_same(ada: AbstractUser, process: Process, source: str):
    slow, fast = RowFactory(ada), RowFactory(ada)
    put_in(slow, None, source=source)
    claimed, started = claim(slow, process)
    Turn.objects.filter(pk=claimed.id).update(owner=None)  # so that it is in nobody's way
    at_once = put_in(fast, process, source=source)
    assert at_once.claimed is not None
    Turn.objects.filter(pk=claimed.id).update(owner=process)
    assert rows_of(fast.id) == rows_of(slow.id)
    assert without_ids(at_once.claimed) == without_ids(claimed)
    assert [event["type"] for event in at_once.events] == ["turn_queued", started[0]["type"]]
    assert Turn.objects.get(pk=at_once.turn.pk).started_at is not None


@pytest.mark.parametrize("before", ["completed", "cancelled"])
@pytest.mark.parametrize("tools", [None, [], ["sessions_ask"], ["noop"]])
def test_what_it_begins_with_is_what_it_would_read(
    ada: AbstractUser, process: Process, before: str, tools: list[str] | None
):
    Agent.objects.create(name="other", description="Helps.")
    Agent.objects.update_or_create(name="asked", defaults={"tools": tools, "is_default": False})
    place = RowFactory(ada)
    Conversation.objects.filter(pk=place.id).update(agent="asked")
    earlier = place.turn(before)
    place.message(earlier, "user", said("before"))
    claimed = put_in(place, process).claimed
    assert claimed is not None
    later = prompts.read_prompt(place.id, claimed.id)
    assert later is not None
    assert claimed.prompt == later.prompt
    assert claimed.prompt is not None
    assert len(claimed.prompt.messages) == 2
    assert claimed.agent_config == read_config("asked")


def test_a_long_history_is_left_to_a_reader_that_nobody_waits_for(
    ada: AbstractUser, process: Process
):
    place = RowFactory(ada)
    earlier = place.turn("completed")
    for number in range(51):
        place.message(earlier, "user", said(f"message {number}"))
    claimed = put_in(place, process).claimed
    assert claimed is not None
    assert claimed.prompt is None
    assert prompts.read_prompt(place.id, claimed.id) is not None  # known from now on
    Turn.objects.filter(pk=claimed.id).update(status="completed")
    again = put_in(place, process, client_id="m2").claimed
    assert again is not None
    assert again.prompt is not None
    assert len(again.prompt.messages) == 53


def test_it_queues_where_anything_waits_or_runs_before_it(ada: AbstractUser, process: Process):
    place, other = RowFactory(ada), RowFactory(ada)
    put_in(other, None)
    assert put_in(place, process).claimed is None  # somebody else waits
    claimed, _events = claim(other, process)
    assert put_in(place, process, client_id="m2").claimed is None  # the first one waits
    assert put_in(other, process, client_id="m2").claimed is None  # a turn runs there
    statuses = Turn.objects.exclude(pk=claimed.id).values_list("status", flat=True)
    assert set(statuses) == {"queued"}


def test_a_process_that_was_ended_claims_nothing_at_once(ada: AbstractUser, process: Process):
    Process.objects.filter(pk=process.pk).update(ended_at=timezone.now())
    place = RowFactory(ada)
    assert put_in(place, process).claimed is None
    assert rows_of(place.id)["turn"]["status"] == "queued"


def test_the_same_message_again_claims_nothing(ada: AbstractUser, process: Process):
    place = RowFactory(ada)
    first = put_in(place, process)
    again = put_in(place, process)
    assert first.claimed is not None
    assert (again.turn.pk, again.is_new, again.claimed) == (first.turn.pk, False, None)
