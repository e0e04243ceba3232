"""A host whose router keeps our models in a database other than the default one."""

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.projects.hosts import ROOT, HostProject
from tests.projects.site_client import ApiClient, visit_pages
from tests.support import LONG_PATIENCE


@pytest.fixture
def host(installed: Path, tmp_path: Path) -> HostProject:
    path = (installed, ROOT / "tests" / "projects")
    host = HostProject("two_databases", path=path, directory=tmp_path)
    host.manage("migrate", "--verbosity", "0")
    host.manage("migrate", "--verbosity", "0", "--database", "people")
    return host


def test_a_turn_a_cancel_and_the_pages_work_in_the_database_that_the_router_names(host):
    assert host.complaints() == []
    user = ("--username", "ada", "--email", "ada@example.org", "--database", "people")
    host.manage("createsuperuser", "--no-input", *user)
    token = host.manage("issue_token", "ada", "test").strip()
    with host.serving("django", "serve", "--port", "{port}") as url:
        visit_pages(url, name="ada")
        with closing(ApiClient(f"{url}/assistant/api", token=token)) as api:
            counted = api.run_turn("call count_orders {}")
            cancelled = api.cancel_turn("wait 60")
        assert counted["calls"][0]["status"] == "succeeded"
        assert (cancelled["status"], cancelled["calls"][0]["status"]) == ("cancelled", "cancelled")
    default, people = (
        _tables(Path(host.environment["HOST_PROJECT_DATABASE"] + suffix))
        for suffix in ("", ".people")
    )
    assert "orders_order" in default
    assert not {name for name in default if name.startswith(("governance_", "turns_", "webchat_"))}
    assert {"turns_turn", "governance_toolcall", "auth_user"} <= people
    assert "orders_order" not in people


def test_only_the_database_of_the_router_decides_whether_the_site_is_usable(host):
    default, people = (
        Path(host.environment["HOST_PROJECT_DATABASE"] + suffix) for suffix in ("", ".people")
    )
    # `serve` refuses to start; plain daphne starts, and `readyz` says it.
    daphne = ("daphne", "-b", "localhost", "-p", "{port}", "everything.asgi:application")
    _damage(default)
    with host.serving(*daphne) as url:
        ready = httpx.get(f"{url}/assistant/readyz", trust_env=False, timeout=LONG_PATIENCE)
        assert (ready.status_code, ready.json()["database"]) == (200, True)
    _damage(people)
    with host.serving(*daphne) as url:
        ready = httpx.get(f"{url}/assistant/readyz", trust_env=False, timeout=LONG_PATIENCE)
        assert (ready.status_code, ready.json()["database"]) == (503, False)
    refused = host.try_to_run("-m", "django", "serve")
    assert refused.returncode == 1
    assert f"The database {people} is no SQLite database" in refused.stderr


def _damage(file: Path) -> None:
    for other in file.parent.glob(f"{file.name}-*"):  # the journal, which would mend it
        other.unlink()
    file.write_bytes(b"no database " * 100)


def _tables(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {name for (name,) in rows if not name.startswith(("sqlite_", "django_migrations"))}
