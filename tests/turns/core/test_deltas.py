"""Streamed text is pushed whole, in order, once; stored now and then; and no more after its end."""

import asyncio

import pytest

from tests.support import eventually
from tests.turns.journals import RecordingJournal
from turns.core.deltas import DeltaStream
from turns.core.exceptions import Fenced
from turns.core.throttle import Ticker


async def test_the_first_piece_is_pushed_at_once_and_the_next_ones_together():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=1, ticker=Ticker(spacing=0.02))

    deltas.add("One")
    await journal.until("publish_text", 0)
    deltas.add(" two")
    deltas.add(" three")
    await journal.until("publish_text", 3)
    await deltas.close()

    assert journal.published == [(0, "One"), (3, " two three")]


async def test_closing_pushes_what_is_left():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=1, ticker=Ticker(spacing=60))
    deltas.add("One")
    await journal.until("publish_text", 0)
    deltas.add(" two")

    await deltas.close()

    assert journal.published == [(0, "One"), (3, " two")]


async def test_nothing_is_pushed_after_the_end():
    journal, ticker = RecordingJournal(), Ticker(spacing=0)
    deltas = DeltaStream(journal, step=1, ticker=ticker)
    deltas.add("One")
    await journal.until("publish_text", 0)
    deltas.add(" two")
    await deltas.close()
    deltas.add(" never")
    other = DeltaStream(journal, step=2, ticker=ticker)
    other.add("Other")
    await eventually(lambda: len(journal.published) == 3)

    assert journal.published == [(0, "One"), (3, " two"), (0, "Other")]
    await other.close()


async def test_all_streams_are_pushed_together():
    journals = [RecordingJournal() for _ in range(3)]
    ticker = Ticker(spacing=0.02)
    streams = [DeltaStream(journal, step=1, ticker=ticker) for journal in journals]
    rounds: list[int] = []

    for number in range(2):
        for deltas in streams:
            deltas.add(str(number))
        await journals[-1].until("publish_text", number)
        rounds.append(sum(len(journal.published) for journal in journals))

    assert rounds == [3, 6]
    for deltas in streams:
        await deltas.close()


async def test_the_text_so_far_is_stored_after_a_while():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=2, ticker=Ticker(spacing=0), save_every=0)

    deltas.add("One")
    await eventually(lambda: journal.saved_texts == {2: "One"})
    deltas.add(" two")
    await eventually(lambda: journal.saved_texts == {2: "One two"})
    await deltas.close()


async def test_nothing_is_stored_twice_without_need():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=1, ticker=Ticker(spacing=0))

    deltas.add("One")
    await deltas.close()

    assert journal.saved_texts == {}


async def test_a_store_that_refuses_stops_the_stream():
    journal = RecordingJournal()
    journal.fail("save_text", Fenced("gone"))
    deltas = DeltaStream(journal, step=1, ticker=Ticker(spacing=0), save_every=0)
    deltas.add("One")
    await journal.until("save_text", 1)
    await eventually(lambda: deltas.error)

    with pytest.raises(Fenced):
        deltas.add(" two")
    deltas.discard()


async def test_discarded_text_is_not_pushed():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=1, ticker=Ticker(spacing=0))
    deltas.add("One")

    deltas.discard()
    deltas.add(" two")

    assert not [t for t in asyncio.all_tasks() if "text delta" in t.get_name()]
    assert journal.entries == []


async def test_text_does_not_wait_for_its_store():
    journal = RecordingJournal()
    held = journal.hold("save_text", of=1)
    deltas = DeltaStream(journal, step=1, ticker=Ticker(spacing=0), save_every=0)
    deltas.add("One")
    await journal.until("save_text", 1)
    deltas.add(" two")
    await journal.until("publish_text", 3)
    held.set()
    await deltas.close()
    assert journal.published == [(0, "One"), (3, " two")]


async def test_what_was_said_before_a_long_silence_is_stored_too():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=1, ticker=Ticker(spacing=0), save_every=0.05)
    deltas.add("One")
    await journal.until("publish_text", 0)
    deltas.add(" two")
    await eventually(lambda: journal.saved_texts == {1: "One two"})
    await deltas.close()
