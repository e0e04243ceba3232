"""Hints through the channel layer: heard by the process they are for, whatever becomes of the layer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from channels.layers import InMemoryChannelLayer, get_channel_layer

from tests.support import PATIENCE, eventually
from turns.processes import wakeups
from webchat.broadcast import ChannelLayerWakeups, process_group


def has_members(process_id: UUID) -> bool:
    layer: Any = get_channel_layer()
    return process_group(process_id) in layer.groups


@asynccontextmanager
async def recording_sink(process_id: UUID) -> AsyncIterator[list[str]]:
    heard: list[str] = []

    async def hear() -> None:
        heard.append("hint")
        if len(heard) == 2:
            raise RuntimeError("obeying it failed")

    task = asyncio.create_task(wakeups.listen(process_id, hear))
    await eventually(lambda: has_members(process_id))
    yield heard
    task.cancel()
    await asyncio.wait({task})


async def test_a_process_hears_what_is_for_it_and_goes_on_after_a_failure():
    process_id = uuid4()
    async with recording_sink(process_id) as heard:
        await wakeups.send(uuid4())
        for _ in range(3):
            await wakeups.send(process_id)
        await eventually(lambda: len(heard) == 3)
    assert not has_members(process_id)


async def test_a_layer_that_is_away_is_listened_to_again(monkeypatch: Any):
    monkeypatch.setattr(wakeups, "LISTEN_PAUSE", 0.01)
    sent = InMemoryChannelLayer.group_send

    async def away(*_: Any) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(InMemoryChannelLayer, "group_send", away)
    process_id = uuid4()
    heard = asyncio.Event()

    async def hear() -> None:
        heard.set()

    task = asyncio.create_task(wakeups.listen(process_id, hear))
    await wakeups.send(process_id)  # lost, and nobody is told
    monkeypatch.setattr(InMemoryChannelLayer, "group_send", sent)
    await eventually(lambda: has_members(process_id))
    await wakeups.send(process_id)
    await asyncio.wait_for(heard.wait(), PATIENCE)
    task.cancel()
    await asyncio.wait({task})


async def test_a_membership_is_renewed(monkeypatch: Any):
    monkeypatch.setattr(wakeups, "LISTEN_PAUSE", 0.01)
    monkeypatch.setattr("webchat.broadcast.MAX_LISTEN_TIME", 0.01)
    added: list[str] = []
    add = InMemoryChannelLayer.group_add

    async def counted(self: Any, group: str, channel: str) -> None:
        added.append(channel)
        await add(self, group, channel)

    monkeypatch.setattr(InMemoryChannelLayer, "group_add", counted)
    async with recording_sink(uuid4()):
        await eventually(lambda: len(set(added)) > 1)


def test_hints_in_memory_reach_no_other_process():
    assert not ChannelLayerWakeups().is_shared
