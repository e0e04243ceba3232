"""A client that hangs up while its request is carried out. It is carried out all the same, and at once."""

import asyncio

import pytest

from tests.support import PATIENCE, cancel, eventually
from tests.turns.support import ChatDriver
from turns.exceptions import TurnNotFound
from turns.models import CancelRequest, Turn
from turns.processes import background
from turns.processes.background import shielded
from turns.running import runtime
from turns.testing import call

pytestmark = pytest.mark.django_db(transaction=True)


async def hang_up(coroutine) -> None:
    """Begin, and be cancelled before the database has answered."""
    task = asyncio.create_task(coroutine)
    for _ in range(3):
        await asyncio.sleep(0)
    await cancel(task)


async def test_a_cancel_is_obeyed_without_the_poll_although_nobody_waits_for_the_answer(
    chat: ChatDriver, settings
):
    settings.TURNS_POLL_INTERVAL = 3_600
    turn_id = await chat.begin([call("c", "held")])
    await hang_up(chat.cancel(turn_id))
    assert (await chat.ended(turn_id, within=PATIENCE)).status == "cancelled"
    assert await CancelRequest.objects.filter(turn=turn_id).acount() == 1


async def test_a_message_begins_its_turn_although_nobody_waits_for_the_answer(
    chat: ChatDriver, settings
):
    settings.TURNS_POLL_INTERVAL = 3_600
    await runtime.ensure_started()
    chat.use_script([])
    await hang_up(chat.say())
    turn = await eventually(Turn.objects.filter(ended_at__isnull=False).afirst)
    assert turn.status == "completed"


async def test_the_end_of_the_process_waits_for_what_is_under_way():
    gate, done = asyncio.Event(), []

    @shielded
    async def slow() -> None:
        await gate.wait()
        done.append(True)

    await hang_up(slow())
    settling = asyncio.create_task(background.join())
    await asyncio.sleep(0)
    assert not settling.done()
    gate.set()
    await settling
    assert done == [True]


@pytest.mark.parametrize(("failure", "lines"), [(ValueError("x"), 1), (TurnNotFound(), 0)])
async def test_a_failure_that_nobody_hears_is_logged(monkeypatch, failure: Exception, lines: int):
    gate, said = asyncio.Event(), []
    monkeypatch.setattr(background.logger, "error", lambda *a, **k: said.append(a))

    @shielded
    async def broken() -> None:
        await gate.wait()
        raise failure

    await hang_up(broken())
    gate.set()
    await background.join()
    await asyncio.sleep(0)
    assert len(said) == lines
