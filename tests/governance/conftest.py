"""Tools and rows that the tests of governance share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from governance import services
from governance.core.registry import make_tool, registry
from governance.core.tools import Tool
from governance.models import ToolCall, ToolPolicy


def _probe(text: str = "") -> str:
    """Return the text."""
    return text


def _other() -> str:
    """Return nothing much."""
    return "other"


@pytest.fixture
def probe() -> Iterator[Tool]:
    """A registered tool that declares a total limit of 50 s."""
    made = make_tool(_probe, name="probe", timeout=50)
    registry.register(made)
    yield made
    registry.unregister("probe")


@pytest.fixture
def plain() -> Iterator[Tool]:
    """A registered tool that declares no limit."""
    made = make_tool(_other, name="plain")
    registry.register(made)
    yield made
    registry.unregister("plain")


@pytest.fixture
def policy(db: None, probe: Tool) -> ToolPolicy:
    """An administrator's limit of the probe."""
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 30_000}, by=None)
    return ToolPolicy.objects.get()


@pytest.fixture
def overtake(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let somebody else's edit slip in before each one that is saved from now on."""
    save = services.save_tool_policy

    def overtaken(**arguments: Any) -> Any:
        save(tool_name="probe", values={"timeout_ms": 10_000}, by=None)
        return save(**arguments)

    return lambda: monkeypatch.setattr(services, "save_tool_policy", overtaken)


@pytest.fixture
def admin_user(db: None) -> Any:
    """A superuser."""
    return get_user_model().objects.create_superuser("boss", "boss@example.org", "secret")


@pytest.fixture
def admin_client(client: Client, admin_user: Any) -> Client:
    """A browser in which the superuser is signed in."""
    client.force_login(admin_user)
    return client


@pytest.fixture
def make_call(db: None) -> Callable[..., ToolCall]:
    """Insert a call's row."""
    count = iter(range(1_000_000))

    def make(**values: Any) -> ToolCall:
        fields = {
            "call_id": f"call-{next(count)}",
            "scope": "conversation",
            "group": "turn",
            "tool_name": "probe",
            "requested_at": timezone.now(),
            **values,
        }
        return ToolCall.objects.create(**fields)

    return make
