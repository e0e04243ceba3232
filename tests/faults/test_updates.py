"""An update: the processes of one version go on while the database is migrated for the next one."""

import sys

import httpx
import pytest

from scripts.servers import Postgres
from tests.faults.cluster import start_scaled
from tests.faults.conftest import MakeSite
from tests.faults.site import SCALED, environment
from tests.fork_server import ROOT
from tests.support import PATIENCE, eventually_sync, run_program

pytestmark = pytest.mark.timeout(600)


def test_turns_go_on_while_the_database_is_migrated_for_the_next_version(scaled: MakeSite):
    site = scaled()
    start_scaled(site)
    client = site.client()
    conversations = [client.converse() for _ in range(6)]
    said = "slowly " + "word " * 60
    turns = [client.say(conversation, said) for conversation in conversations]
    calls = [
        client.say(conversation, f'call affect {{"key": "{number}", "seconds": 1}}')
        for number, conversation in enumerate(conversations)
    ]
    given = environment(site.var, database_url=site.database_url) | SCALED
    migrated = run_program([sys.executable, "-m", "tests.faults.next_version"], cwd=ROOT, env=given)
    assert migrated.returncode == 0, migrated.stderr
    after = [client.say(conversation, "help") for conversation in conversations]
    for turn_id in (*turns, *calls, *after):
        assert client.until_ended(turn_id, within=PATIENCE)["status"] == "completed"
    assert len(site.effects()) == len(calls)
    assert site.is_ready()
    assert site.verdict() == []


def test_a_process_is_not_ready_before_the_database_is_migrated_for_its_version(
    scaled: MakeSite, postgres: Postgres
):
    site = scaled()
    last = "WHERE id = (SELECT max(id) FROM django_migrations WHERE app = 'turns')"
    [(name,)] = postgres.run(f"SELECT name FROM django_migrations {last}", database=site.database)
    postgres.run(f"DELETE FROM django_migrations {last}", database=site.database)
    site.serve_uvicorn("web", role="web")
    told = httpx.get(f"{site.url()}/readyz", trust_env=False, timeout=PATIENCE)
    assert (told.status_code, told.json()["missing_migrations"]) == (503, [f"turns.{name}"])
    with pytest.raises(AssertionError, match=f"lacks turns.{name}"):
        site.run_turns("runner")
    postgres.run(
        "INSERT INTO django_migrations (app, name, applied) VALUES ('turns', %s, now())",
        name,
        database=site.database,
    )
    eventually_sync(site.is_ready, timeout=PATIENCE)
    site.run_turns("runner")
    client = site.client()
    assert client.until_ended(client.say(client.converse(), "help"))["status"] == "completed"
