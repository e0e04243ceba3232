"""Claims that are asked for together share one reading of who is next. A burst is linear, and as fair as single claims."""

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import AbstractUser
from hypothesis import given
from hypothesis import strategies as st

from tests.turns.row_factory import RowFactory, make_process
from tests.turns.statements import Asked
from tests.turns.support import ChatDriver, in_database
from turns.models import Process, Turn
from turns.processes import process_registry
from turns.queueing import scheduling
from turns.running import runtime
from turns.testing import text

USERS = st.sampled_from(["ada", "eve", "olga"])
WAITING = st.lists(USERS, max_size=12).map(
    lambda owners: [(UUID(int=number), owner) for number, owner in enumerate(owners)]
)
AT_WORK = st.dictionaries(USERS, st.integers(0, 5))


@given(waiting=WAITING, at_work=AT_WORK)
def test_the_order_is_that_of_picks_that_each_read_anew(
    waiting: list[tuple[UUID, str]], at_work: dict[str, int]
):
    left, now, picked = list(waiting), Counter(at_work), []
    while left:
        first = scheduling.in_order(left, at_work=now)[0]
        now[dict(left)[first]] += 1
        left = [place for place in left if place[0] != first]
        picked.append(first)
    assert scheduling.in_order(waiting, at_work=at_work) == picked


@given(waiting=WAITING, at_work=AT_WORK, others=st.integers(0, 12))
def test_behind_what_another_process_has_claimed_the_order_is_the_same(
    waiting: list[tuple[UUID, str]], at_work: dict[str, int], others: int
):
    order = scheduling.in_order(waiting, at_work=at_work)
    gone = set(order[:others])
    begun = Counter(owner for place, owner in waiting if place in gone)
    left = [place for place in waiting if place[0] not in gone]
    assert scheduling.in_order(left, at_work=Counter(at_work) + begun) == order[others:]


@pytest.fixture
def process(transactional_db: None) -> Process:
    return process_registry.register()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def claimed_by(process: Process, *batches: scheduling.ClaimBatch | None) -> list[UUID]:
    """The conversations of one claim for each of these batches."""
    claims = [scheduling.claim_next(process=process, batch=batch) for batch in batches]
    return [claimed[0].conversation_id for claimed in claims if claimed is not None]


@pytest.mark.django_db(transaction=True)
def test_a_batch_claims_what_single_claims_do(
    ada: AbstractUser, eve: AbstractUser, operator: AbstractUser, process: Process
):
    for owner in (ada, ada, ada, eve, ada, operator, eve, ada):
        RowFactory(owner).turn("queued")
    for owner in (ada, eve, eve):
        RowFactory(owner).turn("running", owner=make_process())
    asking = RowFactory(operator)
    asking.call(asking.turn("running", owner=make_process()), "a", "awaiting_approval")

    singles = claimed_by(process, *[None] * 9)
    Turn.objects.filter(owner=process).update(status="queued", owner=None, started_at=None)
    assert claimed_by(process, *[scheduling.ClaimBatch()] * 9) == singles
    assert len(singles) == 8


@pytest.mark.django_db(transaction=True)
def test_a_batch_passes_over_what_another_process_has_claimed(ada: AbstractUser, process: Process):
    for _ in range(6):
        RowFactory(ada).turn("queued")
    order = scheduling.waiting_conversations()
    mine = scheduling.ClaimBatch()
    assert claimed_by(process, mine) == order[:1]
    assert claimed_by(make_process(), *[scheduling.ClaimBatch()] * 3) == order[1:4]
    assert claimed_by(process, mine, mine, mine) == order[4:]


@pytest.mark.django_db(transaction=True)
def test_a_batch_at_its_end_reads_anew(ada: AbstractUser, eve: AbstractUser, process: Process):
    places = [RowFactory(ada) for _ in range(3)]
    for place in places:
        place.turn("queued")
    batch = scheduling.ClaimBatch()
    assert claimed_by(process, batch) == [places[0].id]
    places[1].turn("queued")  # waits behind another one of the same conversation
    Turn.objects.filter(conversation=places[2].id).update(status="cancelled")
    late = RowFactory(eve)
    late.turn("queued")
    assert claimed_by(process, *[batch] * 4) == [places[1].id, late.id]


@pytest.mark.django_db(transaction=True)
def test_a_claim_of_a_batch_asks_as_often_however_many_wait(
    ada: AbstractUser, process: Process, asked: Asked
):
    def cost_of(count: int) -> int:
        for _ in range(count):
            RowFactory(ada).turn("queued")
        asked.reset()
        assert len(claimed_by(process, *[scheduling.ClaimBatch()] * count)) == count
        return len(asked.statements)

    RowFactory(ada).turn("running", owner=process)  # so that each reading asks for open calls
    few, many = cost_of(4), cost_of(24)
    each, rest = divmod(many - few, 20)
    assert rest == 0
    assert each <= 8, asked.statements[:12]
    assert few == 3 + 4 * each  # who waits, who is at work, their open calls: read once


async def test_claims_that_are_asked_for_together_share_a_reading(
    chat: ChatDriver, settings: Any, asked: Asked
):
    settings.TURNS_SWEEP_INTERVAL = settings.TURNS_POLL_INTERVAL = 3600.0
    chat.use_script(*[[text("Done.")]] * 13)
    await chat.run()
    turns = await in_database(lambda: [RowFactory(chat.user).turn("queued") for _ in range(12)])
    asked.reset()
    await in_database(scheduling.waiting_conversations)
    _who_waits, who_is_at_work = asked.statements
    asked.reset()
    for turn in turns:
        await runtime.wake(turn.conversation_id)
    for turn in turns:
        await chat.sink.until_ended(turn.pk)
    assert 1 <= asked.statements.count(who_is_at_work) <= 3, asked.statements
