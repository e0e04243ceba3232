"""Wake-ups between processes through the channel layer: each process listens to its own group."""

import asyncio
from contextlib import suppress
from uuid import UUID

from channels.layers import get_channel_layer

from turns.processes.wakeups import OnWakeup
from webchat import broadcast
from webchat.conf import app_settings

MAX_LISTEN_TIME = 3_600.0  # seconds; a layer forgets a member of a group after a day


class ChannelLayerWakeups:
    """Sends wake-ups to other processes, and receives those for this one."""

    @property
    def is_shared(self) -> bool:
        """Whether the layer reaches other processes."""
        return broadcast.is_layer_shared()

    async def send(self, process_id: UUID) -> None:
        """Tell a process to read the database."""
        await broadcast.send_to_group(process_group(process_id), {"type": "process.hint"})

    async def listen(self, process_id: UUID, callback: OnWakeup) -> None:
        """Await `callback` for every wake-up of this process, for an hour at most. Raises what the layer raises."""
        layer = get_channel_layer()
        if layer is None:
            await asyncio.Event().wait()
            return
        group = process_group(process_id)
        async with asyncio.timeout(app_settings.LAYER_TIMEOUT):
            # A broker that is away says so here already: a channel that could not be opened would be left over.
            await layer.group_send(group, {"type": "process.hint"})
            channel = await layer.new_channel()
        try:
            async with asyncio.timeout(app_settings.LAYER_TIMEOUT):
                await layer.group_add(group, channel)
            with suppress(TimeoutError):
                async with asyncio.timeout(MAX_LISTEN_TIME):
                    while True:
                        await layer.receive(channel)
                        await callback()
        finally:
            await broadcast.leave(channel, group)


def process_group(process_id: UUID) -> str:
    return f"p.{process_id.hex}"
