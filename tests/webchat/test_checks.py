"""System checks of what would make the live page deaf, slow or open. Each has an id, a hint and documentation."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
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
MD5 = "django.contrib.auth.hashers.MD5PasswordHasher"
REDIS = {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer"}


class EmailBackend(ModelBackend):
    """A backend as other packages have it: it finds people by their address, and hashes by itself."""

    def authenticate(
        self, request: Any, username: Any = None, password: Any = None, **_: Any
    ) -> Any:
        user = get_user_model().objects.filter(email=username).first()
        return user if user is not None and user.check_password(password) else None


def found(*, deploy: bool = False) -> dict[str | None, CheckMessage]:
    """Return what the checks of webchat say, by id."""
    messages = run_checks(include_deployment_checks=deploy)
    return {message.id: message for message in messages if str(message.id).startswith("webchat.")}


def test_the_site_as_it_ships_has_nothing_to_complain_of():
    assert not found()


def test_a_number_that_is_not_above_zero_is_an_error(subtests: pytest.Subtests):
    for name, wrong in product(NUMBERS, [0, -1, "15", None, True]):
        with subtests.test(f"{name} = {wrong!r}"):
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


def test_deployment_checks_name_the_layer_in_memory_and_a_proxy_that_is_not_named():
    assert set(found(deploy=True)) == {"webchat.I001", "webchat.I003"}
    with override_settings(WEBCHAT_TRUSTED_PROXIES=["127.0.0.1"]):
        assert set(found(deploy=True)) == {"webchat.I001"}


@pytest.mark.parametrize("brand", ["Shop", {"name": ""}, {"title": "Shop"}, {"url": 3}])
def test_a_brand_is_a_name_a_logo_and_a_link(brand: Any):
    with override_settings(WEBCHAT_BRAND=brand):
        assert found()["webchat.E024"].hint
    with override_settings(WEBCHAT_BRAND={"name": "Shop", "logo": "a.svg", "url": "/"}):
        assert not found()


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


def test_a_backend_of_another_package_may_stay_and_waits_its_turn_in_the_hasher():
    backends = [
        "tests.webchat.test_checks.EmailBackend",
        "django.contrib.auth.backends.ModelBackend",
    ]
    with override_settings(AUTHENTICATION_BACKENDS=backends, PASSWORD_HASHERS=[MD5]):
        hint = str(found(deploy=True)["webchat.W005"].hint)
    assert "in the place of 'django.contrib.auth.backends.ModelBackend'" in hint
    assert checks.SIGN_IN_HASHER in hint
    backends[1] = checks.SIGN_IN_BACKEND
    with override_settings(AUTHENTICATION_BACKENDS=backends, PASSWORD_HASHERS=[MD5]):
        assert "webchat.W005" not in found(deploy=True)
    plain = ["django.contrib.auth.backends.ModelBackend"]
    bare = [name for name in django_settings.MIDDLEWARE if name != checks.SIGN_IN_MIDDLEWARE]
    with override_settings(AUTHENTICATION_BACKENDS=plain, PASSWORD_HASHERS=[checks.SIGN_IN_HASHER]):
        assert "webchat.W005" not in found(deploy=True)
        with override_settings(MIDDLEWARE=bare):
            assert "webchat.E007" in found()


def test_hints_name_what_every_project_has():
    memory = {"default": {"BACKEND": checks.MEMORY_LAYER}}
    with override_settings(CHANNEL_LAYERS=memory, TURNS_DISPATCHER="runners"):
        hints = " ".join(
            str(message.hint) for message in run_checks(include_deployment_checks=True)
        )
    assert checks.SHARED_LAYER in hints
    assert "REDIS_URL" not in hints
    assert "DATABASE_URL" not in hints


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
