"""Reading a setting: the value that `django.conf.settings` gives, however it was set."""

from typing import Any

import pytest
from django.conf import Settings, UserSettingsHolder, settings
from django.test import override_settings

from governance.conf import app_settings

NAME = "GOVERNANCE_MAX_THREADS"
DEFAULT = type(app_settings).DECLARED["MAX_THREADS"].default


def assert_same() -> None:
    assert getattr(settings, NAME, DEFAULT) == app_settings.MAX_THREADS


def test_a_setting_follows_each_way_to_override_it(settings: Any):
    assert_same()
    with override_settings(**{NAME: 7}):
        assert app_settings.MAX_THREADS == 7
        with override_settings(**{NAME: 8}):
            assert app_settings.MAX_THREADS == 8
        with override_settings():
            delattr(settings, NAME)
            assert app_settings.MAX_THREADS == DEFAULT
        assert app_settings.MAX_THREADS == 7
    settings.GOVERNANCE_MAX_THREADS = 9
    assert app_settings.MAX_THREADS == 9


@pytest.mark.parametrize("value", [None, 5])
def test_a_setting_follows_settings_of_any_kind(monkeypatch: pytest.MonkeyPatch, value: int | None):
    class Own:
        """Settings that a host has made itself."""

        def __getattr__(self, name: str) -> Any:
            if name == NAME and value is not None:
                return value
            raise AttributeError(name)

    for holder in (UserSettingsHolder(Own()), Own()):
        monkeypatch.setattr(settings, "_wrapped", holder)
        seen = app_settings.MAX_THREADS
        monkeypatch.undo()
        assert seen == (DEFAULT if value is None else value)


def test_a_setting_of_the_module_is_read(monkeypatch: pytest.MonkeyPatch):
    of_module = Settings("tests.settings")
    monkeypatch.setattr(of_module, NAME, 6, raising=False)
    monkeypatch.setattr(settings, "_wrapped", of_module)
    seen = app_settings.MAX_THREADS
    monkeypatch.undo()
    assert seen == 6
