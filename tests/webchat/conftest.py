"""What the tests of webchat share: people, a conversation, the site that runs turns, and sockets to it."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import AsyncClient

from governance.db import run_in_db_thread
from tests.webchat.sockets import Socket
from turns import services
from turns.running import runtime
from webchat import broadcast
from webchat.broadcast import layer_state
from webchat.feed import local_feeds
from webchat.rate_limits import user_rate_limits


@pytest.fixture(autouse=True)
def _layer_is_there() -> Iterator[None]:
    """Let no test begin with what another one has done to the layer."""
    yield
    layer_state.is_away = False


@pytest.fixture
def person(transactional_db: None) -> User:
    return User.objects.create_user("ada", password="pw")


@pytest.fixture
def stranger(transactional_db: None) -> User:
    return User.objects.create_user("eve", password="pw")


@pytest.fixture
async def site(transactional_db: None) -> AsyncIterator[None]:
    """Run turns while the test runs, and leave nothing behind."""
    user_rate_limits.clear()
    yield
    await runtime.stop(grace=0)
    await run_in_db_thread(connections.close_all)()


@pytest.fixture
def through_layer(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all turns ran in another process: their events come through the layer alone, which a test may spoil."""
    memory = {"BACKEND": "channels.layers.InMemoryChannelLayer"}
    backend = "tests.faults.faulty_layer.FaultyLayer"
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": backend, "CONFIG": {"inner": memory}}}
    monkeypatch.setattr(broadcast, "origin", lambda: uuid4().hex)
    monkeypatch.setattr(local_feeds, "add", lambda _feed: None)


@pytest.fixture
async def conversation(site: None, person: User) -> services.ConversationSummary:
    return await services.create_conversation(user=person)


@pytest.fixture
async def user_client(site: None, person: User) -> AsyncClient:
    """Return a browser in which the person is signed in."""
    client = AsyncClient()
    await client.aforce_login(person)
    return client


@pytest.fixture
async def connect(
    user_client: AsyncClient, conversation: services.ConversationSummary
) -> AsyncIterator[Callable[..., Socket]]:
    """Return a function that makes sockets to the conversation; those left open are closed at the end."""
    made: list[Socket] = []

    def make(**how: Any) -> Socket:
        cookie = user_client.cookies["sessionid"].value
        wanted: dict[str, Any] = {"conversation_id": conversation.id, "session": cookie, **how}
        made.append(Socket(**wanted))
        return made[-1]

    yield make
    for socket in made:
        await socket.leave()
