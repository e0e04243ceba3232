"""Fixtures of the tests of turns: people, tools, and a chat whose turns run in this process."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser, Permission
from django.db import connection, connections

from governance.db import run_in_db_thread
from tests.support import PATIENCE
from tests.turns.support import (
    CHAT_MODEL,
    ChatDriver,
    FakeTools,
    RecordingSink,
    recording_sink,
    registered_fake_tools,
)
from turns import services
from turns.running import runtime


@pytest.fixture
def ada(transactional_db: None) -> AbstractUser:
    return get_user_model().objects.create_user("ada", password="pw")


@pytest.fixture
def eve(transactional_db: None) -> AbstractUser:
    return get_user_model().objects.create_user("eve", password="pw")


@pytest.fixture
def operator(transactional_db: None) -> AbstractUser:
    """Staff that may see and cancel everybody's turns."""
    user = get_user_model().objects.create_user("olga", password="pw", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__in=["view_all", "cancel_any", "view_turn"])
    )
    return user


@pytest.fixture
def fake_tools() -> Iterator[FakeTools]:
    with registered_fake_tools() as fake_tools:
        yield fake_tools


@pytest.fixture
def sink() -> Iterator[RecordingSink]:
    with recording_sink() as sink:
        yield sink


@pytest.fixture
async def site(transactional_db: None, settings: Any, tmp_path: Any) -> AsyncIterator[None]:
    """Run turns while the test runs, and leave nothing behind."""
    settings.TURNS_CHAT_MODEL = CHAT_MODEL
    settings.GOVERNANCE_WORKSPACE_ROOT = str(tmp_path)
    yield
    await runtime.stop(grace=0)
    await run_in_db_thread(connections.close_all)()


@pytest.fixture
def without_workspace(site: None, settings: Any) -> None:
    """Let bodies begin with the clocks of their calls: nothing is made for them first."""
    settings.GOVERNANCE_WORKSPACE_ROOT = ""


@pytest.fixture
async def chat(
    site: None, ada: AbstractUser, sink: RecordingSink, fake_tools: FakeTools
) -> ChatDriver:
    """Return ada's conversation."""
    conversation = await services.create_conversation(user=ada)
    return ChatDriver(user=ada, conversation_id=conversation.id, sink=sink)


@pytest.fixture
async def die(chat: ChatDriver) -> AsyncIterator[Callable[..., Awaitable[UUID]]]:
    """Run turns of the chat's conversation in another process, and kill it under the first one's tool."""
    children: list[asyncio.subprocess.Process] = []

    async def die(*messages: str, **environment: str) -> UUID:
        database = str(connection.settings_dict["NAME"])
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.turns.crashing", str(chat.id), chat.user.username),
            *messages,
            stdout=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "TEST_DATABASE_URL": os.environ["DATABASE_URL"],
                "TURNKEEPER_DATABASE": database,
                **environment,
            },
        )
        children.append(child)
        async with asyncio.timeout(PATIENCE):
            assert child.stdout is not None
            ready = (await child.stdout.readline()).split()
            assert ready[:1] == [b"ready"], ready
            child.send_signal(signal.SIGKILL)
            await child.wait()
        return UUID(ready[1].decode())

    yield die
    for child in children:
        if child.returncode is None:
            child.kill()
            await child.wait()
