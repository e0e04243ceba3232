"""Fixtures of the tests of turns: people, tools, and a chat whose turns run in this process."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser, Permission
from django.db import connections

from governance.db import run_in_db_thread
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
