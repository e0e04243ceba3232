"""A process that runs turns until it is killed: python -m tests.turns.crashing CONVERSATION USER_NAME MESSAGE…

The first call hangs; every message after the first waits behind it. Says "ready" once the call runs.
With TURNKEEPER_CANCEL set, the turn's end is requested before "ready", and the tool does not obey.
"""

import asyncio
import os
import sys
from uuid import UUID

import django


async def main(conversation_id: UUID, user_name: str, messages: list[str]) -> None:
    from django.contrib.auth import get_user_model

    from governance import CancelSource
    from tests.turns.support import ChatDriver, in_database, recording_sink, registered_fake_tools
    from turns.cancelling import commands
    from turns.cancelling.commands import CancelCommand
    from turns.testing import call, text

    user = await get_user_model().objects.aget(username=user_name)
    with recording_sink() as sink, registered_fake_tools():
        chat = ChatDriver(user=user, conversation_id=conversation_id, sink=sink)
        chat.use_script(
            [text("Working."), call("q", "quick", text="real"), call("h", "stubborn")],
        )
        first = await chat.say(messages[0])
        await sink.until("tool_result", tool_id="q")
        await chat.running(first, "h")
        for message in messages[1:]:
            await chat.say(message)
        if os.environ.get("TURNKEEPER_CANCEL"):
            command = CancelCommand(user=user, source=CancelSource.BUTTON)
            await in_database(lambda: commands.request_turn_cancel(first, command))
        print("ready", first, flush=True)  # noqa: T201 - for the test that reads it
        await asyncio.Event().wait()


if __name__ == "__main__":
    django.setup()
    from django.conf import settings
    from django.db import connections

    connections["default"].settings_dict["NAME"] = os.environ["TURNKEEPER_DATABASE"]
    settings.TURNS_CHAT_MODEL = "tests.turns.support.current_chat_model"
    settings.TURNS_POLL_INTERVAL = 3600
    asyncio.run(main(UUID(sys.argv[1]), sys.argv[2], sys.argv[3:]))
