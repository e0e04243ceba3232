"""The site's settings: what the environment and `.env` say, what is safe without them, and what the database does."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from stat import S_IMODE
from typing import get_origin

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db.utils import ConnectionHandler

from config import databases, environment, secret_key
from governance.conf import GovernanceSettings
from tests.processes import run_python
from tests.support import LONG_PATIENCE
from turns.conf import TurnsSettings
from webchat.conf import WebchatSettings

ROOT = Path(__file__).resolve().parents[2]
KEY = "a-key-that-is-long-enough-for-production-and-has-variety-0123456789"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "config.settings"}
    given = {**clean, "ENV_FILE": os.devnull, **environment}
    return run_python(*arguments, environment=given)


def read(*names: str, **environment: str) -> list[object]:
    script = "import json, sys; from config import settings as s;"
    script += "print(json.dumps([getattr(s, name) for name in sys.argv[1:]], default=str))"
    answer = run("-c", script, *names, **environment)
    assert answer.returncode == 0, answer.stderr
    values: list[object] = json.loads(answer.stdout)
    return values


def test_without_an_environment_the_site_is_closed_and_keeps_to_itself(tmp_path):
    names = ["DEBUG", "SESSION_COOKIE_SECURE"]
    assert read(*names, VAR_DIR=str(tmp_path)) == [False, True]
    script = (
        "from governance.conf import app_settings as s; print(s.EXEC_ENABLED, s.WEB_ALLOW_PRIVATE)"
    )
    assert run("-c", script, VAR_DIR=str(tmp_path)).stdout.split() == ["False", "False"]
    [databases, layers, model] = read(
        "DATABASES", "CHANNEL_LAYERS", "TURNS_CHAT_MODEL", VAR_DIR=str(tmp_path)
    )
    assert databases["default"]["NAME"] == str(tmp_path / "db.sqlite3")
    assert layers["default"]["BACKEND"] == "channels.layers.InMemoryChannelLayer"
    assert model == "local"
    assert S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%41b", "a+b c"])
def test_the_database_lies_in_the_directory_whatever_its_name(tmp_path, name):
    [databases] = read("DATABASES", VAR_DIR=str(tmp_path / name))
    assert databases["default"]["NAME"] == str(tmp_path / name / "db.sqlite3")


def test_lists_may_have_spaces_behind_their_commas(tmp_path):
    names = ["ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "SILENCED_SYSTEM_CHECKS"]
    given = dict.fromkeys(names, "[::1], b.example.org,")
    assert read(*names, **given, VAR_DIR=str(tmp_path)) == [["[::1]", "b.example.org"]] * 3


def test_the_environment_comes_before_the_file(tmp_path):
    file = tmp_path / "env"
    file.write_text(
        f"PORT=9001\nAGENT_TOOL_TIMEOUT=2.5\nAGENT_MODEL=other\nVAR_DIR={tmp_path}\n", "utf-8"
    )
    values = read(
        "PORT",
        "GOVERNANCE_DEFAULT_TIMEOUT",
        "TURNS_CHAT_MODEL",
        ENV_FILE=str(file),
        AGENT_MODEL="local",
    )
    assert values == [9001, 2.5, "local"]


def test_behind_a_proxy_on_the_same_machine_its_word_for_the_clients_address_counts():
    behind = {"SECRET_KEY": KEY, "BEHIND_PROXY": "true"}
    name = "WEBCHAT_TRUSTED_PROXIES"
    assert read(name, **behind) == [["127.0.0.1", "::1"]]
    assert read(name, **behind, **{name: "10.0.0.0/8,fc00::/7"}) == [["10.0.0.0/8", "fc00::/7"]]


def test_postgresql_gets_a_pool_and_redis_a_layer_that_may_be_idle():
    urls = {"DATABASE_URL": "postgres://me:secret@db/site", "REDIS_URL": "redis://cache:6379/2"}
    [databases, layers] = read("DATABASES", "CHANNEL_LAYERS", SECRET_KEY=KEY, **urls)
    pool = databases["default"]["OPTIONS"]["pool"]
    assert (pool["max_size"], pool["reconnect_timeout"]) == (20, 2.0)
    assert "idle_in_transaction_session_timeout" in databases["default"]["OPTIONS"]["options"]
    assert databases["default"]["OPTIONS"]["tcp_user_timeout"] == 15_000
    assert databases["default"]["CONN_MAX_AGE"] == 0
    assert layers["default"]["BACKEND"] == "channels_redis.pubsub.RedisPubSubChannelLayer"
    [host] = layers["default"]["CONFIG"]["hosts"]
    assert (host["address"], host["socket_timeout"]) == (urls["REDIS_URL"], None)


@pytest.mark.parametrize(("https", "code"), [("true", 0), ("false", 1)])
def test_production_settings_pass_the_checks_for_deployment(tmp_path, https, code):
    environment = {
        "VAR_DIR": str(tmp_path),
        "SECRET_KEY": KEY,
        "ALLOWED_HOSTS": "example.org",
        "HTTPS": https,
        "GOVERNANCE_EXEC_SANDBOX": "none",  # whether this machine has one is not the question
    }
    answer = run("manage.py", "check", "--deploy", "--fail-level", "WARNING", **environment)
    assert answer.returncode == code, answer.stderr


def test_processes_that_start_at_once_agree_on_the_secret_key(tmp_path):
    path = tmp_path / "var" / "secret_key"
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(secret_key.read_or_create, [path] * 8))
    assert len(keys) == 1
    assert len(keys.pop()) >= 50
    assert [file.name for file in path.parent.iterdir()] == ["secret_key"]


@pytest.mark.django_db
def test_sqlite_keeps_what_was_committed_and_waits_for_other_writers(tmp_path):
    file = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "db.sqlite3"}
    connections = ConnectionHandler({"default": databases.with_options(file, pool_size=1)})
    connection = connections["default"]
    with connection.cursor() as cursor:
        values = [
            cursor.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous")
        ]
        waits = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.close()
    assert (values, waits) == (["wal", 2], 20_000)
    assert connection.transaction_mode == "IMMEDIATE"


def test_the_facades_need_no_django():
    # A new interpreter: what the fork server starts has Django already.
    look = "import sys, governance, turns; sys.exit('django' in sys.modules)"
    subprocess.run([sys.executable, "-c", look], cwd=ROOT, timeout=LONG_PATIENCE, check=True)


def test_the_environment_reaches_every_setting_of_the_apps(tmp_path):
    given = {
        "TURNS_TURN_TIMEOUT": ("900", 900.0),
        "TURNS_PARK_AFTER": ("none", None),
        "TURNS_STEP_LIMIT": ("12", 12),
        "GOVERNANCE_TOOL_TIMEOUTS": (
            '{"exec": 30, "web_fetch": 2.5}',
            {"exec": 30, "web_fetch": 2.5},
        ),
        "TURNS_CHAT_MODEL_ENDPOINTS": (
            '{"house": {"base_url": "http://house/v1", "key_variable": "HOUSE_KEY"}}',
            {"house": {"base_url": "http://house/v1", "key_variable": "HOUSE_KEY"}},
        ),
        "GOVERNANCE_MCP_VARIABLES": ("TOKEN, TEAM", ["TOKEN", "TEAM"]),
        "GOVERNANCE_APPROVAL": ("exec=always,*=never", {"exec": "always", "*": "never"}),
        "GOVERNANCE_EXEC_ENVIRONMENT": ("LANG, TZ", ["LANG", "TZ"]),
        "GOVERNANCE_EXEC_READABLE": ('["/opt/a,b"]', ["/opt/a,b"]),
        "GOVERNANCE_EXEC_NETWORK": ("on", True),
        "GOVERNANCE_GIT_AUTHOR": ("A, B <a@b>", "A, B <a@b>"),
        "WEBCHAT_MAX_SOCKETS_PER_USER": (" 7 ", 7),
        "WEBCHAT_CSP": ("none", None),
    }
    texts = {name: text for name, (text, _) in given.items()}
    values = read(*given, **texts, VAR_DIR=str(tmp_path))
    assert values == [value for _, value in given.values()]
    file = tmp_path / "env"
    file.write_text("".join(f"{name}={text}\n" for name, text in texts.items()), "utf-8")
    assert read(*given, ENV_FILE=str(file), VAR_DIR=str(tmp_path)) == values


def test_every_type_of_a_setting_can_be_written_in_the_environment():
    samples = {Mapping: '{"a": "1"}', Sequence: "a,b", bool: "off", int: "3", float: "2.5"}
    for app in (GovernanceSettings, TurnsSettings, WebchatSettings):
        for setting in app.DECLARED.values():
            name = setting.full_name
            text = samples.get(get_origin(setting.kind) or setting.kind, "text")
            if "ENDPOINTS" in name:
                text = '{"a": {"base_url": "http://127.0.0.1"}}'
            assert list(environment.read({name: text}, app)) == [name]
            assert environment.read({name: ""}, app) == {}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("TURNS_STEP_LIMIT", "many", "whole number"),
        ("HTTPS", "ture", "true or false"),
    ],
)
def test_a_value_that_cannot_be_read_stops_the_start_in_words(tmp_path, name, text, told):
    answer = run("manage.py", "check", VAR_DIR=str(tmp_path), **{name: text})
    last = answer.stderr.splitlines()[-1]
    assert answer.returncode == 1
    assert name in last
    assert repr(text) in last
    assert told in last


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("TURNS_TURN_TIMEOUT", "30 min", "a number"),
        ("GOVERNANCE_EXEC_ENABLED", "perhaps", "true or false"),
        ("GOVERNANCE_TOOL_TIMEOUTS", "{exec: 30}", "JSON"),
        ("GOVERNANCE_TOOL_TIMEOUTS", "exec", "JSON"),
        ("GOVERNANCE_TOOL_TIMEOUTS", "exec=soon", "JSON"),
        ("GOVERNANCE_TOOL_TIMEOUTS", "[1]", "JSON"),
        ("GOVERNANCE_EXEC_READABLE", "[1", "a list in JSON"),
    ],
)
def test_what_a_setting_of_an_app_takes_is_said_where_the_environment_says_something_else(
    name, text, told
):
    with pytest.raises(ImproperlyConfigured) as refused:
        environment.read({name: text}, GovernanceSettings, TurnsSettings)
    assert str(refused.value).startswith(f"{name} is {text!r}")
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("name", "kind", "text", "told"),
    [
        ("AGENT_TOOL_TIMEOUT", float, "2 min", "a number"),
        ("PORT", int, "web", "a whole number"),
    ],
)
def test_what_a_setting_of_the_site_takes_is_said_where_the_environment_says_something_else(
    monkeypatch, name, kind, text, told
):
    monkeypatch.setenv(name, text)
    with pytest.raises(ImproperlyConfigured, match=told) as refused:
        environment.Environment().get_value(name, kind)
    assert str(refused.value).startswith(f"{name} is {text!r}")


def test_an_empty_value_is_as_if_it_were_not_there(tmp_path):
    example = (ROOT / ".env.example").read_text("utf-8")
    assigned = [line.lstrip("#").split("=")[0] for line in example.splitlines() if "=" in line]
    empty = dict.fromkeys((name for name in assigned if name.isupper()), "")
    assert {"HTTPS", "PORT", "DATABASE_URL", "AGENT_MODEL"} <= empty.keys()
    names = ["SESSION_COOKIE_SECURE", "PORT", "TURNS_CHAT_MODEL", "ALLOWED_HOSTS", "DATABASES"]
    place = str(tmp_path)
    assert read(*names, **{**empty, "VAR_DIR": place}) == read(*names, VAR_DIR=place)


def test_a_misspelled_name_in_the_environment_is_noticed(tmp_path):
    names = {"TURNS_STEPLIMIT": "9", "GOVERNANCE_POLICY_POLL": "1"}
    answer = run("manage.py", "check", VAR_DIR=str(tmp_path), **names)
    assert answer.returncode == 0
    for name in names:
        assert f"There is no setting {name}." in answer.stderr


LOG_A_LINE = """
import django, logging
django.setup()
logging.getLogger("turns.x").info("It happened", extra={"turn_id": 7})
"""


def test_the_sites_log_carries_the_ids_that_come_with_a_line(tmp_path):
    answer = run("-c", LOG_A_LINE, VAR_DIR=str(tmp_path))
    assert answer.stderr.rstrip().endswith("INFO turns.x: It happened turn_id=7")
    answer = run("-c", LOG_A_LINE, VAR_DIR=str(tmp_path), LOG_FORMAT="json")
    said = json.loads(answer.stderr)
    assert (said["logger"], said["message"], said["turn_id"]) == ("turns.x", "It happened", 7)
    answer = run("-c", LOG_A_LINE, VAR_DIR=str(tmp_path), LOG_FORMAT="xml")
    assert answer.stderr.rstrip().endswith("LOG_FORMAT is one of ('line', 'json'), not 'xml'.")
