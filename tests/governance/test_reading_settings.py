"""Reading a setting: the value that `django.conf.settings` gives, however it was set."""

from typing import Any

from django.conf import settings
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
