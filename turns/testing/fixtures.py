"""Fixtures for projects with pytest-django. Name this module in your `conftest.py`: `pytest_plugins = ["turns.testing.fixtures"]`."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model

if TYPE_CHECKING:
    from turns.testing.hosts import FinishedTurn


@pytest.fixture
def chat_user(db: None) -> Any:
    """Return the user for whom `run_turn` runs turns. Override this fixture to use a user of your own."""
    users = get_user_model()
    return users._default_manager.create(**{users.USERNAME_FIELD: "chat-user@example.org"})


@pytest.fixture
def run_turn(chat_user: Any) -> "Callable[..., FinishedTurn]":
    """Return `turns.testing.hosts.run_turn` with `chat_user` as its user."""
    from turns.testing import hosts  # noqa: PLC0415 - pytest imports this file before Django is set up

    return partial(hosts.run_turn, user=chat_user)
