"""System checks of turns: every setting, each with an id, a hint and a line in the documentation."""

import pytest
from django.conf import settings as django_settings
from django.core.checks import run_checks
from django.test import override_settings

from tests.turns.support import CHAT_MODEL
from turns import checks
from turns.conf import app_settings

BAD: dict[str, tuple[object, ...]] = {
    "CHAT_MODEL": ("", "  ", None, 7),
    "INSTRUCTIONS": (None, 7),
    "HISTORY_CACHE_MEMORY": (-1, None, "64 MB"),
    "PROCESS_NAME": (7, None),
    "REPEAT_STEPS": ("", "everyone", None, 7),
    "MAX_TOOLS": (0, None, "256"),
    "MAX_TOOL_TOKENS": (0, None, 1.5),
    "TURN_TIMEOUT": (-1, "60", float("inf"), True),
    "STEP_LIMIT": (0, None, 1.5),
    "MAX_CALLS_PER_ANSWER": (0, None, "100"),
    "MAX_QUEUED": (0, None),
    "MAX_MESSAGE_LENGTH": (0, "50"),
    "POLL_INTERVAL": (0, None),
    "CANCEL_BOUND": (0, None, 61),
    "DRAIN_GRACE": (-1, None),
    "LOOP_WARN_AFTER": (1, "4"),
    "LOOP_HALT_AFTER": (2, True),
    "SNAPSHOT_MESSAGES": (0, None),
    "CHAT_MODEL_BASE_URL": (None, "ftp://example.org", "example.org"),
    "CHAT_MODEL_ENDPOINTS": (
        None,
        ["house"],
        {"house": {}},
        {"house": {"base_url": "file:///etc/passwd"}},
        {"house": {"base_url": "http://user:password@house"}},
        {"house": {"base_url": "http://house", "key_variable": "two words"}},
        {"house": {"base_url": "http://house", "key": "sk-secret"}},
        {"my.house": {"base_url": "http://house"}},
    ),
    "CHAT_MODEL_FIRST_BYTE_TIMEOUT": (0, None),
    "CHAT_MODEL_IDLE_TIMEOUT": (0, None),
    "CHAT_MODEL_REQUEST_TIMEOUT": (0, None),
    "CHAT_MODEL_RETRIES": (-1, None),
    "CHAT_MODEL_RETRY_MAX_WAIT": (-1, None),
    "DISPATCHER": ("", None, 7),
    "MAX_LIVE": (0, None, "50"),
    "SWEEP_INTERVAL": (0, None),
    "MAX_DEPTH": (-1, None),
    "MAX_CHILDREN": (0, None),
    "MAX_FAMILY": (0, None),
    "MAX_FAMILY_TOTAL": (0, None),
    "MAX_MESSAGES_PER_MINUTE": (0, None),
    "REPORT_GRACE": (-1, None),
    "PARK_AFTER": (0, "3", 51),
    "PARK_WINDOW": (0, None),
    "LEASE_RENEW_INTERVAL": (0, "3"),
    "LEASE_FENCE_AFTER": (0, None),
    "LEASE_TTL": (0, None, float("inf")),
    "CHAT_MODEL_MEDIA": (["video"], "image", 7),
    "ATTACHMENT_STORAGE": (None, 7),
    "ATTACHMENT_TYPES": (["text/html"], "text/plain", None),
    "ATTACHMENT_MAX_BYTES": (0, None, "20 MB"),
    "ATTACHMENT_MAX_PIXELS": (0, None),
    "ATTACHMENT_TIMEOUT": (0, None),
    "ATTACHMENT_TEXT_LENGTH": (0, None),
    "ATTACHMENTS_PER_MESSAGE": (0, None, 101),
    "ATTACHMENT_QUOTA": (0, None),
    "TRACE_CONTENT": (None, "yes", 1),
    "CANCEL_WORDS": ("hou op", None, [7], ["?!"], [""], ["x" * 201]),
}


@pytest.fixture(autouse=True)
def default_settings(settings):
    for name in dir(django_settings):
        if name.startswith("TURNS_"):
            delattr(settings, name)


def found():
    return {message.id: message for message in run_checks(tags=["turns"])}


def test_the_defaults_are_fine():
    assert found() == {}


def test_a_wrong_value_is_an_error_with_the_settings_own_id(subtests: pytest.Subtests):
    for name, value in [(name, value) for name, values in BAD.items() for value in values]:
        with subtests.test(f"{name} = {value!r}"):
            with override_settings(**{f"TURNS_{name}": value}):
                [message] = found().values()
            assert message.id == app_settings.DECLARED[name].rule.check
            assert message.msg == f"TURNS_{name} is {value!r}."
            assert message.hint


def test_every_setting_has_a_check_of_its_own_and_a_wrong_value():
    assert set(app_settings.DECLARED) == set(BAD)
    ids = {setting.rule.check for setting in app_settings.DECLARED.values()}
    assert len(ids) == len(BAD)


@pytest.mark.parametrize(
    ("values", "check_id"),
    [
        ({"CHAT_MODEL": "nowhere.to_be:found"}, "turns.E019"),
        ({"CHAT_MODEL": "turns.models:LIVE"}, "turns.E019"),
        ({"LOOP_WARN_AFTER": 8, "LOOP_HALT_AFTER": 8}, "turns.E020"),
        ({"CHAT_MODEL": ":make_model"}, "turns.E019"),
        ({"DISPATCHER": "nowhere.to_be.Found"}, "turns.E023"),
        ({"STEPS_LIMIT": 5}, "turns.W001"),
        ({"LEASE_RENEW_INTERVAL": 6}, "turns.E040"),
        ({"LEASE_FENCE_AFTER": 13}, "turns.E040"),
        ({"LEASE_TTL": 9}, "turns.E040"),
        ({"CANCEL_BOUND": 1.5}, "turns.W003"),
        ({"CANCEL_BOUND": 0.6}, "turns.W004"),
        ({"POLL_INTERVAL": 5}, "turns.W005"),
    ],
)
def test_settings_that_do_not_work_or_do_not_fit_are_noticed(values, check_id):
    with override_settings(**{f"TURNS_{name}": value for name, value in values.items()}):
        messages = found()
    assert list(messages) == [check_id]
    assert messages[check_id].hint


FILES = {"BACKEND": "django.core.files.storage.FileSystemStorage"}


@pytest.mark.parametrize(
    ("storage", "more", "ids"),
    [
        (None, {}, ["turns.E061"]),
        ({**FILES, "OPTIONS": {"location": "/srv/media/files"}}, {}, ["turns.E062"]),
        ({**FILES, "OPTIONS": {"location": "/srv/static/../media"}}, {}, ["turns.E062"]),
        (FILES, {}, ["turns.E062"]),  # without a location it is MEDIA_ROOT
        ({**FILES, "OPTIONS": {"location": "/srv/private"}}, {}, []),
        (
            {**FILES, "OPTIONS": {"location": "/srv/private"}},
            {"TURNS_DISPATCHER": "turns.queueing.dispatchers.EmbeddedDispatcher"},
            ["turns.W008"],
        ),
        (
            {"BACKEND": "django.core.files.storage.InMemoryStorage"},
            {"TURNS_DISPATCHER": "turns.queueing.dispatchers.EmbeddedDispatcher"},
            [],
        ),
    ],
)
def test_attachments_are_private_and_within_reach(settings, storage, more, ids):
    settings.MEDIA_ROOT = "/srv/media"
    settings.STORAGES = {**settings.STORAGES, **({"files": storage} if storage else {})}
    with override_settings(TURNS_ATTACHMENT_STORAGE="files", **more):
        messages = found()
    assert list(messages) == ids
    assert all(message.hint for message in messages.values())


@pytest.mark.parametrize(
    ("setting", "check_id"), [("CHAT_MODEL", "turns.E019"), ("DISPATCHER", "turns.E023")]
)
@pytest.mark.parametrize(
    ("code", "reason", "hint"),
    [
        ("import a_library_that_is_missing", "No module named 'a_library_that", "install 'a_libr"),
        ("from json import lods", "cannot import name 'lods'", "correct the import"),
        ("def other(): ...", "make", "Set it to"),
        ("make = 7", "not callable", "Set it to"),
        ("{}['KEY']", "KeyError: 'KEY'", "correct the cause"),
        ("def make(", "SyntaxError: ", "correct the cause"),
    ],
)
def test_why_the_projects_own_code_cannot_be_used_is_said(
    setting, check_id, code, reason, hint, tmp_path, monkeypatch
):
    name = f"own_code_{abs(hash((tmp_path, code)))}"
    (tmp_path / f"{name}.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with override_settings(**{f"TURNS_{setting}": f"{name}.make"}):
        message = found()[check_id]
    assert reason in message.msg
    assert hint in message.hint


SQLITE = {"ENGINE": "django.db.backends.sqlite3"}
POSTGRES = {"ENGINE": "django.db.backends.postgresql"}
POOLED = {"OPTIONS": {"pool": True}}
CHECKED = {"CONN_HEALTH_CHECKS": True}
BOUNDED = {"connect_timeout": 5, "keepalives_idle": 5, "tcp_user_timeout": 15_000}
ELSEWHERE = {**POSTGRES, "HOST": "db.example.org"}


@pytest.mark.parametrize(
    ("database", "dispatcher", "ids"),
    [
        # Runners need PostgreSQL, and SQLite writers that begin as such.
        ({**SQLITE, "OPTIONS": {"transaction_mode": "IMMEDIATE"}}, "runners", ["turns.E025"]),
        (POSTGRES, "runners", []),
        (SQLITE, "", ["turns.E026"]),
        ({**SQLITE, "OPTIONS": {"transaction_mode": None}}, "", ["turns.E026"]),
        ({**SQLITE, "OPTIONS": {"transaction_mode": "DEFERRED"}}, "", ["turns.E026"]),
        # A connection that is kept may be lost unseen.
        ({**POSTGRES, "CONN_MAX_AGE": 0}, "", []),
        ({**POSTGRES, **CHECKED}, "", []),
        ({**POSTGRES, "CONN_MAX_AGE": 60, **CHECKED}, "", []),
        ({**POSTGRES, "CONN_MAX_AGE": 60}, "", ["turns.W007"]),
        ({**POSTGRES, "CONN_MAX_AGE": None}, "", ["turns.W007"]),
        ({**POSTGRES, **POOLED}, "", []),
        ({**POSTGRES, **POOLED, **CHECKED}, "", ["turns.W006"]),
        # A database elsewhere may be gone without a word.
        ({**ELSEWHERE, "OPTIONS": BOUNDED}, "", []),
        ({**ELSEWHERE, "OPTIONS": {**BOUNDED, "pool": True}}, "", []),
        ({**ELSEWHERE, "OPTIONS": {"connect_timeout": 5}}, "", ["turns.W009"]),
        (ELSEWHERE, "", ["turns.W009"]),
        ({**POSTGRES, "HOST": "/var/run/postgresql"}, "", []),
        ({**POSTGRES, "HOST": "127.0.0.1"}, "", []),
        ({**POSTGRES, "HOST": ""}, "", []),
    ],
)
def test_a_database_that_does_not_fit_is_noticed(settings, monkeypatch, database, dispatcher, ids):
    monkeypatch.setattr(checks.settings, "DATABASES", {"default": {"OPTIONS": {}, **database}})
    if dispatcher:
        settings.TURNS_DISPATCHER = dispatcher
    assert list(found()) == ids
    assert all(message.hint for message in found().values())


def test_a_provider_without_its_key_is_noticed_and_nobody_is_asked(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with override_settings(TURNS_CHAT_MODEL="openai:some-model"):
        assert found()["turns.W002"].hint


@pytest.mark.parametrize(
    "values",
    [
        {"CHAT_MODEL": CHAT_MODEL},
        {"CHAT_MODEL": "tests.turns.support:current_chat_model"},
        {"LOOP_WARN_AFTER": None, "LOOP_HALT_AFTER": None},
        {"LOOP_HALT_AFTER": None},
        {"TURN_TIMEOUT": None},
        {"TURN_TIMEOUT": 0},
        {"DISPATCHER": "turns.queueing.dispatchers.EmbeddedDispatcher"},
    ],
)
def test_what_makes_sense_is_fine(values):
    with override_settings(**{f"TURNS_{name}": value for name, value in values.items()}):
        assert found() == {}


@pytest.mark.parametrize(
    "endpoints",
    [
        {"openai": {"base_url": "http://house"}},
        {"house": {"base_url": "http://house", "api": "graphql"}},
    ],
)
def test_an_endpoint_has_a_name_of_its_own_and_an_api_that_is_known(settings, endpoints):
    settings.TURNS_CHAT_MODEL_ENDPOINTS = endpoints

    assert set(found()) == {"turns.E068"}
