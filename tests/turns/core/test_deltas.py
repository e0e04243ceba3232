"""Streamed text is pushed whole, in order, once; stored now and then; and no more after its end."""

import pytest

from tests.governance.core.support import advance, on_manual_clock
from tests.support import eventually
from tests.turns.journals import RecordingJournal
from turns.core.answering import DeltaStream
from turns.core.exceptions import Fenced


async def test_the_first_piece_is_pushed_at_once_and_the_next_ones_together():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=1, push_every=0.02)

    deltas.add("One")
    await journal.until("publish_text", 0)
    deltas.add(" two")
    deltas.add(" three")
    await journal.until("publish_text", 3)
    await deltas.close()

    assert journal.published == [(0, "One"), (3, " two three")]


async def test_closing_pushes_what_is_left():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=1, push_every=60)
    deltas.add("One")
    await journal.until("publish_text", 0)
    deltas.add(" two")

    await deltas.close()

    assert journal.published == [(0, "One"), (3, " two")]


async def test_nothing_is_pushed_after_the_end():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=1, push_every=0)
    deltas.add("One")
    deltas.add(" two")
    await deltas.close()
    deltas.add(" never")
    other = DeltaStream(journal, step=2, push_every=0)
    other.add("Other")
    await eventually(lambda: len(journal.published) == 3)

    assert journal.published == [(0, "One"), (3, " two"), (0, "Other")]
    await other.close()


@on_manual_clock
async def test_each_stream_has_a_pace_of_its_own():
    """One that begins between two pieces of another waits for nobody, and nobody waits for it."""
    early, late = RecordingJournal(), RecordingJournal()
    first = DeltaStream(early, step=1, push_every=0.2)
    second = DeltaStream(late, step=1, push_every=0.2)
    first.add("1")
    await advance(0.1)
    second.add("1")
    for deltas in (first, second):
        deltas.add("2")
    assert (len(early.published), len(late.published)) == (1, 1)

    await advance(0.1)
    assert (len(early.published), len(late.published)) == (2, 1)
    await advance(0.1)
    assert (len(early.published), len(late.published)) == (2, 2)
    for deltas in (first, second):
        await deltas.close()


async def test_the_text_so_far_is_stored_after_a_while():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=2, push_every=0, save_every=0)

    deltas.add("One")
    await eventually(lambda: journal.saved_texts == {2: "One"})
    deltas.add(" two")
    await eventually(lambda: journal.saved_texts == {2: "One two"})
    await deltas.close()


async def test_nothing_is_stored_twice_without_need():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=1, push_every=0)

    deltas.add("One")
    await deltas.close()

    assert journal.saved_texts == {}


async def test_a_store_that_refuses_stops_the_stream():
    journal = RecordingJournal()
    journal.fail("save_text", Fenced("gone"))
    deltas = DeltaStream(journal, step=1, push_every=0, save_every=0)
    deltas.add("One")
    await journal.until("save_text", 1)
    await eventually(lambda: deltas.error)

    with pytest.raises(Fenced):
        deltas.add(" two")
    deltas.discard()


@on_manual_clock
async def test_discarded_text_is_not_pushed():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=1)
    deltas.add("One")
    deltas.add(" two")

    deltas.discard()
    deltas.add(" three")
    await advance(5)

    assert journal.published == [(0, "One")]
    assert journal.saved_texts == {}


async def test_text_does_not_wait_for_its_store():
    journal = RecordingJournal()
    held = journal.hold("save_text", of=1)
    deltas = DeltaStream(journal, step=1, push_every=0, save_every=0)
    deltas.add("One")
    await journal.until("save_text", 1)
    deltas.add(" two")
    await journal.until("publish_text", 3)
    held.set()
    await deltas.close()
    assert journal.published == [(0, "One"), (3, " two")]


async def test_what_was_said_before_a_long_silence_is_stored_too():
    journal = RecordingJournal()
    deltas = DeltaStream(journal, step=1, push_every=0, save_every=0.05)
    deltas.add("One")
    await journal.until("publish_text", 0)
    deltas.add(" two")
    await eventually(lambda: journal.saved_texts == {1: "One two"})
    await deltas.close()
