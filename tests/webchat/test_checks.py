"""System checks of what would make the live page deaf, slow or open. Each has an id, a hint and documentation."""

from datetime import timedelta
from typing import Any

import pytest
from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, run_checks
from django.db.models.functions import Now
from django.test import override_settings
from django.urls import path

from turns.models import Process
from webchat import checks
from webchat.conf import app_settings
from webchat.consumers import ChatConsumer
from webchat.routing import SiteOriginValidator, websocket_application

pytestmark = pytest.mark.django_db  # Django's own checks ask the database what it can do

NUMBERS = [name for name, setting in app_settings.DECLARED.items() if setting.kind in (int, float)]
REDIS = {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer"}


def found(*, deploy: bool = False) -> dict[str | None, CheckMessage]:
    """Return what the checks of webchat say, by id."""
    messages = run_checks(include_deployment_checks=deploy)
    return {message.id: message for message in messages if str(message.id).startswith("webchat.")}


def test_the_site_as_it_ships_has_nothing_to_complain_of():
    assert not found()


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("wrong", [0, -1, "15", None, True])
def test_a_number_that_is_not_above_zero_is_an_error(name: str, wrong: Any):
    with override_settings(**{f"WEBCHAT_{name}": wrong}):
        message = found()["webchat.E001"]
    assert message.msg == f"WEBCHAT_{name} is {wrong!r}."
    assert message.hint


def test_a_misspelled_setting_is_noticed():
    with override_settings(WEBCHAT_HELO_TIMEOUT=5):
        assert "WEBCHAT_HELO_TIMEOUT" in found()["webchat.W003"].msg


@pytest.mark.parametrize(
    ("layers", "id_"),
    [
        ({}, "webchat.E002"),
        ({"default": {"BACKEND": checks.CORE_LAYER}}, "webchat.W001"),
    ],
)
def test_a_channel_layer_that_is_missing_or_slow_is_said(layers: dict[str, Any], id_: str):
    with override_settings(CHANNEL_LAYERS=layers):
        assert found()[id_].hint


def test_a_redis_client_that_drops_idle_sockets_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checks, "version", lambda _name: "8.1.0")
    host = {"address": "redis://localhost", "socket_timeout": None}
    for config, complaints in (
        ({}, 1),
        ({"hosts": ["redis://localhost"]}, 1),
        ({"hosts": [host, {**host, "socket_timeout": 5}]}, 1),
        ({"hosts": [host]}, 0),
    ):
        with override_settings(CHANNEL_LAYERS={"default": {**REDIS, "CONFIG": config}}):
            assert list(found()).count("webchat.E003") == complaints
    monkeypatch.setattr(checks, "version", lambda _name: "7.4.1")
    with override_settings(CHANNEL_LAYERS={"default": REDIS}):
        assert not found()


def test_a_layer_in_memory_is_told_of_where_turns_run_elsewhere():
    with override_settings(TURNS_DISPATCHER="tests.turns.queueing.test_dispatchers.Nowhere"):
        assert found()["webchat.W004"].hint


_chat: Any = ChatConsumer.as_asgi()
_route: Any = path("ws/", _chat)
_routes: Any = path("", websocket_application)


@pytest.mark.parametrize(
    ("application", "is_error"),
    [
        (ProtocolTypeRouter({"websocket": URLRouter([_route])}), True),
        (
            ProtocolTypeRouter({"websocket": AuthMiddlewareStack(URLRouter([_route]))}),
            True,
        ),
        (ProtocolTypeRouter({"websocket": URLRouter([_routes])}), False),
        (ProtocolTypeRouter({"websocket": SiteOriginValidator(_chat)}), False),
        (ProtocolTypeRouter({"http": None}), False),
    ],
)
def test_sockets_that_every_site_may_open_are_an_error(monkeypatch, application, is_error):
    monkeypatch.setattr(checks, "import_string", lambda _path: application)
    assert ("webchat.E004" in found()) == is_error


@pytest.mark.django_db
def test_processes_that_do_not_hear_each_other_are_an_error():
    def complaints() -> list[str | None]:
        messages = run_checks(databases=["default"])
        return [message.id for message in messages if message.id == "webchat.E005"]

    first = Process.objects.create(host="one", pid=1, seen_at=Now(), has_shared_layer=True)
    assert complaints() == []
    Process.objects.create(host="two", pid=2, seen_at=Now(), has_shared_layer=True)
    assert complaints() == []
    Process.objects.create(host="three", pid=3, seen_at=Now() - timedelta(minutes=1))
    assert complaints() == []
    Process.objects.filter(pk=first.pk).update(has_shared_layer=False)
    assert complaints() == ["webchat.E005"]


def test_deployment_checks_name_the_layer_in_memory_and_a_missing_policy():
    assert list(found(deploy=True)) == ["webchat.I001"]
    bare = [name for name in django_settings.MIDDLEWARE if name not in checks.CSP_MIDDLEWARE]
    with override_settings(MIDDLEWARE=bare):
        assert "webchat.W002" in found(deploy=True)
    with override_settings(MIDDLEWARE=bare, WEBCHAT_CSP=None):
        assert "webchat.W002" not in found(deploy=True)


@pytest.mark.parametrize("wrong", ["10.0.0.0/8", None, ["proxy.example.org"], [10], ["10.0.0.1/8"]])
def test_trusted_proxies_are_addresses_and_networks(wrong: Any):
    with override_settings(WEBCHAT_TRUSTED_PROXIES=wrong):
        assert found()["webchat.E006"].hint
    with override_settings(WEBCHAT_TRUSTED_PROXIES=["10.0.0.0/8", "2001:db8::1"]):
        assert not found()


def test_a_sign_in_that_hashes_whatever_comes_is_told_of():
    plain = ["django.contrib.auth.backends.ModelBackend"]
    with override_settings(AUTHENTICATION_BACKENDS=plain):
        assert checks.SIGN_IN_BACKEND in str(found(deploy=True)["webchat.W005"].hint)
    with override_settings(
        AUTHENTICATION_BACKENDS=["django.contrib.auth.backends.RemoteUserBackend"]
    ):
        assert "webchat.W005" not in found(deploy=True)
    assert "webchat.W005" not in found(deploy=True)


def test_a_sign_in_without_its_middleware_is_an_error():
    rest = [name for name in django_settings.MIDDLEWARE if name != checks.SIGN_IN_MIDDLEWARE]
    with override_settings(MIDDLEWARE=rest):
        assert found()["webchat.E007"].hint


def test_attempts_without_limit_are_told_of():
    with override_settings(AUTHENTICATION_BACKENDS=[checks.SIGN_IN_BACKEND]):
        assert found(deploy=True)["webchat.I002"].hint
    assert "webchat.I002" not in found(deploy=True)


def test_a_proxy_that_is_not_known_is_told_of():
    behind = {"SECURE_PROXY_SSL_HEADER": ("HTTP_X_FORWARDED_PROTO", "https")}
    with override_settings(**behind):
        assert found(deploy=True)["webchat.W006"].hint
    with override_settings(**behind, WEBCHAT_TRUSTED_PROXIES=["10.0.0.1"]):
        assert "webchat.W006" not in found(deploy=True)
