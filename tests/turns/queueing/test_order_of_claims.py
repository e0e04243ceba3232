"""Which turn is next, over all processes: the order holds while the turns before it begin."""

from collections import Counter
from uuid import UUID

import pytest
from django.contrib.auth.models import AbstractUser

from tests.turns.row_factory import RowFactory, make_process
from tests.turns.statements import Asked
from turns.models import Process, Turn
from turns.processes import process_registry
from turns.queueing import queue

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def process(transactional_db: None) -> Process:
    return process_registry.register()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def claimed_by(process: Process, *, times: int) -> list[UUID]:
    """The conversations of so many claims."""
    claims = [queue.claim_next(process=process) for _ in range(times)]
    return [claimed[0].conversation_id for claimed in claims if claimed is not None]


@pytest.mark.parametrize("seed", range(8))
def test_the_order_is_that_of_picks_that_each_read_anew(
    ada: AbstractUser, eve: AbstractUser, operator: AbstractUser, process: Process, seed: int
):
    owners = (ada, eve, operator)
    busy = [owners[(seed * step) % 3] for step in range(seed)]
    for owner in busy:
        RowFactory(owner).turn("running", owner=make_process())
    asking = RowFactory(operator)  # waits for a person, so it takes no place
    asking.call(asking.turn("running", owner=make_process()), "a", "awaiting_approval")
    waiting: list[tuple[UUID, AbstractUser]] = []
    for number in range(12):
        place = RowFactory(owners[(number * number + seed) % 3])
        place.turn("queued")
        place.turn("queued")  # waits behind the first one, and changes nothing
        waiting.append((place.id, place.conversation.owner))

    at_work, left, picked = Counter(owner.pk for owner in busy), list(waiting), []
    while left:
        first = min(left, key=lambda place: (at_work[place[1].pk], waiting.index(place)))
        left.remove(first)
        at_work[first[1].pk] += 1
        picked.append(first[0])

    assert queue.waiting_conversations() == picked
    assert claimed_by(process, times=13) == picked


def test_what_another_process_claims_changes_nothing_for_those_behind(
    ada: AbstractUser, process: Process
):
    for _ in range(6):
        RowFactory(ada).turn("queued")
    order = queue.waiting_conversations()
    assert claimed_by(process, times=1) == order[:1]
    assert claimed_by(make_process(), times=3) == order[1:4]
    assert claimed_by(process, times=3) == order[4:]


def test_a_claim_asks_as_often_however_many_wait(ada: AbstractUser, process: Process, asked: Asked):
    def cost_of_one(waiting: int) -> int:
        for _ in range(waiting):
            RowFactory(ada).turn("queued")
        asked.reset()
        assert len(claimed_by(process, times=1)) == 1
        cost = len(asked.statements)
        Turn.objects.filter(status="queued").update(status="cancelled")
        return cost

    RowFactory(ada).turn("running", owner=process)  # so that each claim asks for open calls
    assert cost_of_one(4) == cost_of_one(60) <= 12
