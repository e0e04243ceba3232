"""Streamed text: stored for all turns at once, where it belongs and nowhere else, and one bad text fails alone."""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from tests.faulty_database import FaultyDatabase
from tests.turns.row_factory import RowFactory
from tests.turns.support import in_database
from turns.models import Message
from turns.running import journal
from turns.running.journal import StreamedText, TextWrites

pytestmark = pytest.mark.django_db(transaction=True)


def plant(owner: Any, *, status: str = "running", is_streaming: bool = True) -> tuple[Any, Any]:
    """A turn and the message of its first step, with the text that is to be stored."""
    factory = RowFactory(owner)
    turn = factory.turn(status, epoch=7)
    row = factory.message(turn, "assistant", is_streaming=is_streaming)
    return row, StreamedText(turn=factory.claimed(turn), step=1, text=f"text of {turn.pk} \x00é")


def stored(row: Message) -> str:
    row.refresh_from_db()
    return row.content[0]["text"] if row.content else ""


def test_the_texts_of_many_turns_are_one_transaction(ada):
    planted = [plant(ada) for _ in range(20)]
    with CaptureQueriesContext(connection) as queries:
        assert journal.store_texts([text for _, text in planted]) == [True] * 20
    assert sum(query["sql"].startswith("BEGIN") for query in queries) <= 1
    assert len(queries) <= 22
    for row, text in planted:
        assert stored(row) == text.text.replace("\x00", "\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize(
    ("planted", "epoch"),
    [({"status": "cancelling"}, 7), ({"is_streaming": False}, 7), ({}, 6)],
    ids=["a turn that is being cancelled", "a complete message", "a turn of another owner"],
)
def test_nothing_is_stored_where_it_does_not_belong(ada, planted, epoch):
    (row, text), (other, kept) = plant(ada, **planted), plant(ada)
    elsewhere = replace(text, turn=replace(text.turn, epoch=epoch))
    assert journal.store_texts([elsewhere, kept]) == [False, True]
    assert stored(row) == ""
    assert stored(other) != ""


async def test_one_that_fails_alone_fails_no_other(ada, faulty_database: FaultyDatabase):
    planted = [await in_database(partial(plant, ada)) for _ in range(5)]
    faulty_database.lose_statement('UPDATE "turns_message"', times=2)
    writes = TextWrites()
    results = await asyncio.gather(
        *(writes.save(text) for _, text in planted), return_exceptions=True
    )
    faulty_database.heal()
    failed = [result for result in results if result is not True]
    assert len(failed) == 1
    assert isinstance(failed[0], OperationalError)
    texts = [await in_database(partial(stored, row)) for row, _ in planted]
    assert sum(bool(text) for text in texts) == 4


async def test_a_message_that_is_not_there_is_told(ada):
    _, text = await in_database(partial(plant, ada))
    nowhere = StreamedText(turn=text.turn, step=9, text=str(uuid4()))
    writes = TextWrites()
    assert await asyncio.gather(writes.save(text), writes.save(nowhere)) == [True, False]
