"""What `make run` starts: a site with a sign-in, which ends on Ctrl-C and is the same the next time."""

import os
import re
import shutil
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from scripts.servers import free_port
from scripts.start import chosen_extras, is_loopback, open_up
from tests.made_once import migrated_file
from tests.processes import run_python
from tests.setup.started_site import ROOT, signed_in, started_site
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync, run_program
from turns.chat_models.providers import COMPATIBLE

HIDE = """
import sys
from importlib.machinery import PathFinder

class WithoutExtras(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in {names}:
            return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutExtras
"""
OF_EXTRAS = {
    "anthropic",
    "channels_redis",
    "google",
    "mcp",
    "openai",
    "opentelemetry",
    "playwright",
    "prometheus_client",
    "psycopg",
    "psycopg_pool",
    "pydantic_ai",
    "redis",
}


@contextmanager
def site(var: Path, **more: str) -> Iterator[tuple[str, Path]]:
    """Run a site until the block ends; `first` in its directory holds what a test puts there."""
    port = free_port()
    more = {"PYTHONPATH": str(var / "first"), **more}
    with started_site(
        "scripts.start", var=var, port=port, is_up=lambda said: "Serving on" in said, **more
    ) as said:
        yield f"http://127.0.0.1:{port}", said


def is_served(url: str) -> bool:
    return httpx.get(url, trust_env=False, timeout=LONG_PATIENCE).is_success


def sign_in(url: str, *, password: str) -> httpx.Response:
    with signed_in(url, password=password) as client:
        return client.get("/")


@pytest.fixture
def var(tmp_path: Path) -> Path:
    """Return the directory of a site with its tables: to make them is half of a first start."""
    shutil.copy(migrated_file(), tmp_path / "db.sqlite3")
    return tmp_path


def test_what_is_wrong_is_said_instead_of_served(var):
    environment = {
        "PATH": str(var),
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(var),
        "GOVERNANCE_EXEC_SANDBOX": "bwrap",
    }
    command = [sys.executable, "-m", "scripts.start"]
    ended = run_program(command, cwd=ROOT, env=environment)
    assert ended.returncode == 1
    assert "governance.E036" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_first_start_shows_a_password_that_works_and_the_second_one_reuses_everything(tmp_path):
    with site(tmp_path) as (url, said):
        password = re.search(r"user demo with the password (\S+)", said.read_text())[1]
        assert sign_in(url, password=password).status_code == 200
        assert is_served(f"{url}/static/webchat/js/chat.js")
    with site(tmp_path) as (url, said):
        assert password not in said.read_text()
        assert sign_in(url, password=password).status_code == 200
        assert sign_in(url, password="wrong").status_code == 302


def test_the_default_needs_nothing_of_what_the_extras_install(var):
    (var / "first").mkdir()
    hide = HIDE.replace("{names}", repr(OF_EXTRAS))
    (var / "first" / "sitecustomize.py").write_text(hide, "utf-8")
    with site(var) as (url, said):
        password = re.search(r"user demo with the password (\S+)", said.read_text())[1]
        assert sign_in(url, password=password).status_code == 200
        assert "Traceback" not in said.read_text()


@pytest.mark.parametrize(
    ("variable", "value", "extra"),
    [
        ("AGENT_MODEL", "anthropic:claude", "anthropic"),
        ("AGENT_MODEL", "google:gemini", "google"),
        ("AGENT_MODEL", "openai:gpt", "openai"),
        ("AGENT_MODEL", "openai-chat:gpt", "openai"),
        *(("AGENT_MODEL", f"{name}:x", "openai") for name in COMPATIBLE),
        ("DATABASE_URL", "postgres://user@host/name", "scaled"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://host:4318", "otel"),
        ("REDIS_URL", "redis://host", "scaled"),
        ("TURNS_CHAT_MODEL_ENDPOINTS", '{"house": {}}', "openai"),
        ("TURNS_CHAT_MODEL_ENDPOINTS", '{"house": {"api": "deepseek"}}', "openai"),
        ("TURNS_CHAT_MODEL_ENDPOINTS", '{"house": {"api": "anthropic"}}', "anthropic"),
        ("TURNS_CHAT_MODEL_ENDPOINTS", '{"house": {"api": "google"}}', "google"),
        ("TURNS_DISPATCHER", "runners", "scaled"),
    ],
)
def test_what_the_environment_asks_for_names_its_extra_unless_it_is_there(
    monkeypatch, variable, value, extra
):
    assert (ROOT / "requirements" / f"{extra}.in").exists()
    assert [*chosen_extras({variable: value})] == []
    monkeypatch.setattr("scripts.start.find_spec", lambda _name: None)
    assert [*chosen_extras({variable: value})] == [(variable, value, extra)]
    assert [*chosen_extras({"AGENT_MODEL": "local", "TURNS_DISPATCHER": "embedded"})] == []


def test_endpoints_name_each_extra_once(monkeypatch):
    monkeypatch.setattr("scripts.start.find_spec", lambda _name: None)
    declared = '{"a": {"api": "anthropic"}, "b": {"api": "openai"}, "c": {}}'
    extras = [extra for _, _, extra in chosen_extras({"TURNS_CHAT_MODEL_ENDPOINTS": declared})]
    assert extras == ["anthropic", "openai"]


@pytest.mark.parametrize("value", ["{", "[]", '{"house": 7}', '{"house": {"api": []}}'])
def test_endpoints_that_the_settings_will_refuse_name_no_extra(monkeypatch, value):
    monkeypatch.setattr("scripts.start.find_spec", lambda _name: None)
    assert [*chosen_extras({"TURNS_CHAT_MODEL_ENDPOINTS": value})] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_commands_may_run_where_no_other_machine_can_reach_the_site(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", ""])
def test_commands_stay_off_where_another_machine_can_reach_the_site(host):
    assert not is_loopback(host)


HELLO = "CREATE TABLE recipes (title TEXT)"
LATER = """
CREATE TABLE django_migrations (id INTEGER PRIMARY KEY, app TEXT, name TEXT, applied TEXT);
INSERT INTO django_migrations (app, name, applied) VALUES ('turns', '9999_from_the_future', '2030-01-01');
"""


def scramble(file: Path, *, at: int, value: bytes) -> None:
    with file.open("r+b") as database:
        database.seek(at)
        database.write(value)


@pytest.mark.parametrize(
    ("script", "at", "value", "said"),
    [
        (HELLO, 0, b"no header of SQLite", "is no SQLite database, or its beginning is damaged"),
        (HELLO, 100, b"\xff" * 3000, "is damaged"),
        (HELLO, 18, b"\x03\x01", "cannot be written"),  # a format that SQLite only reads
        (HELLO, None, b"", "belongs to something else: it has 1 tables"),
        (LATER, None, b"", "was migrated by a later version (turns.9999)"),
    ],
    ids=["no database", "damaged", "read-only", "foreign", "later"],
)
def test_a_database_that_cannot_be_used_is_said_in_words_and_left_alone(
    tmp_path, script, at, value, said
):
    file = tmp_path / "db.sqlite3"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(script)
    if at is not None:
        scramble(file, at=at, value=value)
    before = file.read_bytes()
    environment = {"PATH": os.environ["PATH"], "ENV_FILE": os.devnull, "VAR_DIR": str(tmp_path)}
    ended = run_python("-m", "scripts.start", environment=environment)
    assert ended.returncode == 1
    assert str(file) in ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert "Serving on" not in ended.stdout
    if at is not None:
        assert file.read_bytes() == before


def test_a_second_one_on_the_same_database_says_that_it_is_one(var):
    with site(var) as (_url, first):
        assert "Another process" not in first.read_text()
        (var / "two").mkdir()
        with site(var / "two", DATABASE_URL=f"sqlite:///{var / 'db.sqlite3'}") as (_other, second):
            told = f"Another process uses this database too: {socket.gethostname()}:"
            eventually_sync(lambda: told in second.read_text(), timeout=PATIENCE)


def test_an_empty_value_is_opened_up_as_a_missing_one_is(monkeypatch):
    monkeypatch.setattr("os.environ", {"HOST": "", "HTTPS": "", "GOVERNANCE_EXEC_ENABLED": "false"})
    open_up()
    assert os.environ["HTTPS"] == "false"
    assert os.environ["GOVERNANCE_EXEC_ENABLED"] == "false"
