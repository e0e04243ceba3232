"""Plugging in: host projects of two kinds, with the package as it is installed and not the repository behind it."""

import json
import sys
import urllib.request
from pathlib import Path

import httpx
import pytest

from tests.docs.pages import DOCS, python_blocks
from tests.projects.hosts import ROOT, HostProject
from tests.projects.site_client import visit_pages
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync, run_program

HOSTS = ("governance_only", "everything", "by_email")

MAKE_TOKEN = """
import django
django.setup()
from django.contrib.auth import get_user_model
from webchat import api_tokens
ada = get_user_model().objects.create_user("ada", password="correct horse")
print(api_tokens.issue(user=ada, name="test")[1])
"""
LOAD_PAGES = """
import django
django.setup()
from django.contrib.auth import get_user_model
from django.test import Client
browser = Client()
assert browser.get("/").content == b"the host's own page"
away = browser.get("/assistant/")
assert (away.status_code, away["Location"]) == (302, "/assistant/login/?next=/assistant/"), away
assert b"<form" in browser.get("/assistant/login/").content
browser.force_login(get_user_model().objects.create_superuser("grace"))
page = browser.post("/assistant/c/new/", follow=True)
assert page.status_code == 200
assert b"webchat/js/chat.js" in page.content
assert "script-src 'self' 'nonce-" in page["Content-Security-Policy"]
index = browser.get("/admin/").content
assert b"Tool limits" in index
assert b"turn/overview/" not in index
assert b"Calls with an unknown outcome" in browser.get("/admin/turns/turn/overview/").content
"""
RUN_RECORDED = """
import asyncio
import django
django.setup()
from governance.models import ToolCall as Row
from governance.runtime import close_executor

async def main():
    outcome = await run_tool(answer_id="a1", call_id="c1", name="order_status", arguments={"order": 7})
    assert outcome.result == "Order 7 is on its way.", outcome
    following = asyncio.create_task(follow_edits())
    await asyncio.sleep(0)
    following.cancel()
    await close_executor()

asyncio.run(main())
row = Row.objects.get(group="a1", call_id="c1")
assert (row.status, row.timeout_ms, row.timeout_source) == ("succeeded", 10_000, "setting"), vars(row)
"""

LOOK_AT_EVERY_LIST = """
import os
import django
django.setup()
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
ours = [row for row in admin.site._registry if row._meta.app_label in ("governance", "turns", "webchat")]
assert len(ours) >= 10
browser = Client()
grace = get_user_model().objects.create_superuser("grace@example.org")
browser.force_login(grace)
for row in ours:
    address = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_changelist")
    for query in ("", "?q=grace@example.org"):
        page = browser.get(address + query, follow=True)
        assert page.status_code == 200, (address, query, page.status_code)
        assert "?e=1" not in page.request["QUERY_STRING"], address
call_command("check", fail_level="WARNING")
page = browser.get(reverse("admin:webchat_apitoken_add")).text
assert ("admin-autocomplete" in page) == bool(os.environ.get("MEMBERS_SEARCH"))
made = browser.post(reverse("admin:webchat_apitoken_add"), {"name": "mine", "user": grace.pk}, follow=True)
assert "Copy it now" in made.text, made.text
assert "grace@example.org" in made.text
"""

LOOK_AT_THE_LIMITS = """
import django
django.setup()
from django.apps import apps
from django.contrib.auth import get_user_model
from django.test import Client
browser = Client()
browser.force_login(get_user_model().objects.create_superuser("grace"))
page = browser.get("/admin/governance/toolpolicy/")
if "console" not in apps.app_configs:  # plain pages list what is stored, and offer the others
    page = browser.get("/admin/governance/toolpolicy/add/")
assert page.status_code == 200
assert "order_status" in page.text
"""

RUN_FOR_A_MEMBER = """
import asyncio
import django
django.setup()
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from governance import Host, ToolCall
from governance.runtime import close_executor, get_executor

async def run(user_id):
    names = ("whose", "whose_in_thread", "whose_in_process", "for_clerks")
    executor = await get_executor()
    calls = [executor.run(ToolCall(id=name, tool_name=name), host=Host(user_id=user_id)) for name in names]
    outcomes = await asyncio.gather(*calls)
    await close_executor()
    return [outcome.error_type or outcome.result for outcome in outcomes]

ada = get_user_model().objects.create_user("ada@example.org")
said = f"UUID {ada.pk} ada@example.org"
assert asyncio.run(run(ada.pk)) == [said, said, said, "forbidden"]
ada.user_permissions.add(Permission.objects.get(codename="view_member"))
assert asyncio.run(run(ada.pk)) == [said, said, said, "done"]
"""

NOTHING_TO_MIGRATE = """
import django
django.setup()
from django.core.management import call_command
import governance
print(governance.__file__)
call_command("check", fail_level="WARNING")
call_command("makemigrations", check_changes=True, dry_run=True)
call_command("migrate", verbosity=0)
call_command("migrate", check_unapplied=True)
"""


@pytest.fixture
def host(request: pytest.FixtureRequest, installed: Path, tmp_path: Path) -> HostProject:
    return HostProject(
        request.param, path=(installed, ROOT / "tests" / "projects"), directory=tmp_path
    )


@pytest.mark.parametrize("host", HOSTS, indirect=True)
def test_a_host_project_has_no_complaints_and_nothing_to_migrate_afterwards(host):
    where, *said = host.run("-c", NOTHING_TO_MIGRATE).splitlines()
    assert str(ROOT) not in where
    assert "no issues" in said[0]
    host.keep_migrated()


@pytest.mark.parametrize("host", ["governance_only"], indirect=True)
def test_governance_alone_runs_the_example_of_its_page_and_records_it(host):
    host.migrate()
    blocks = python_blocks(DOCS / "howto" / "use-governance-alone.md")
    [run_tool] = [block for block in blocks if "def run_tool" in block]
    [follow_edits] = [block for block in blocks if "def follow_edits" in block]
    begin, rest = RUN_RECORDED.split("django.setup()\n")
    script = f"{begin}django.setup()\n{run_tool}\n{follow_edits}\n{rest}"
    host.run("-c", script)
    imported = "import django, sys; django.setup(); print({'turns', 'webchat', 'channels'} & {*sys.modules})"
    # A new interpreter: what the fork server starts has most libraries already.
    done = run_program([sys.executable, "-c", imported], env=host.environment)
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.parametrize("host", ["governance_only", "everything"], indirect=True)
def test_every_project_with_governance_sees_the_tools_that_have_no_limits_of_their_own(host):
    host.migrate()
    host.run("-c", LOOK_AT_THE_LIMITS)


@pytest.mark.parametrize("host", ["everything"], indirect=True)
def test_the_pages_are_there_below_the_prefix_of_the_host(host):
    host.migrate()
    host.run("-c", LOAD_PAGES)


@pytest.mark.parametrize("host", ["everything"], indirect=True)
def test_a_host_project_serves_turns_with_its_own_tools(host):
    host.migrate()
    token = host.run("-c", MAKE_TOKEN).strip()
    with host.serving("django", "serve", "--port", "{port}") as url:
        api = f"{url}/assistant/api"
        begun = _ask(f"{api}/conversations", token=token, body={})
        messages = f"{api}/conversations/{begun['conversation_id']}/messages"
        sent = _ask(messages, token=token, body={"text": 'call order_status {"order": 7}'})
        turn = f"{api}/turns/{sent['turn_id']}"
        eventually_sync(lambda: _ask(turn, token=token)["status"] == "completed", timeout=PATIENCE)
        [call] = _ask(turn, token=token)["calls"]
    assert (call["tool_name"], call["status"]) == ("order_status", "succeeded")


def _ask(url: str, *, token: str, body: object = None) -> dict:
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=LONG_PATIENCE) as answer:
        return json.load(answer)


@pytest.mark.parametrize("host", ["by_email"], indirect=True)
@pytest.mark.parametrize("search_fields", [None, "", "email"])
def test_users_of_the_projects_own_need_not_be_in_its_admin_nor_be_found_there(host, search_fields):
    if search_fields is not None:
        host.environment["MEMBERS_SEARCH"] = search_fields
    host.migrate()
    host.run("-c", LOOK_AT_EVERY_LIST)


@pytest.mark.parametrize("host", ["by_email"], indirect=True)
def test_who_signs_in_by_email_with_an_id_that_is_no_number_has_the_chat(host):
    host.migrate()
    host.manage("createsuperuser", "--no-input", "--email", "ada@example.org")
    assert host.manage("issue_token", "ada@example.org", "scrape").strip()
    with host.serving("django", "serve", "--port", "{port}") as url:
        visit_pages(url, name="ada@example.org")
        page = httpx.get(f"{url}/assistant/login/", trust_env=False, timeout=LONG_PATIENCE)
        assert "E-mail address" in page.text


@pytest.mark.parametrize("host", ["by_email"], indirect=True)
def test_tools_find_the_user_of_the_projects_own_model_wherever_they_run(host):
    host.migrate()
    host.run("-c", RUN_FOR_A_MEMBER)
