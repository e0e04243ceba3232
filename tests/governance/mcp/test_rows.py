"""Servers as rows: edited in the admin, in force at once, with their health beside them (G2)."""

import json
import sys

import pytest
from django.contrib.auth import get_user_model
from django.db import connections
from django.test import Client
from django.urls import reverse

from governance import ToolCall, registry, runtime
from governance.doors import database_door
from governance.mcp import runtime as servers
from governance.models import McpServer
from tests.governance.core.process_table import tagged
from tests.governance.mcp.support import HERE, MARK
from tests.support import eventually

pytestmark = pytest.mark.django_db(transaction=True)
COMMAND = f"{sys.executable} {HERE / 'unruly_server.py'}"
FIELDS = {
    "name": "unruly",
    "enabled": "on",
    "transport": "stdio",
    "command": COMMAND,
    "environment": MARK,
    "url": "",
    "headers": "",
    "allowed_tools": "echo\ncrash",
    "timeout_ms": "30 s",
    "max_running": "",
    "prefix": "",
}


@pytest.fixture
async def executor(monkeypatch):
    monkeypatch.setenv(MARK, "rows")
    yield await runtime.get_executor()
    await runtime.close_executor()
    assert tagged(f"{MARK}=rows") == []
    await database_door(connections.close_all)()


@database_door
def sign_in(**who):
    browser = Client()
    user = get_user_model().objects.create_user("boss", password="pw", is_staff=True, **who)
    browser.force_login(user)
    return browser


@database_door
def add(browser, **values):
    return browser.post(reverse("admin:governance_mcpserver_add"), FIELDS | values)


@database_door
def edit(browser, **values):
    row = McpServer.objects.get()
    url = reverse("admin:governance_mcpserver_change", args=[row.pk])
    fields = {name: value for name, value in (FIELDS | values).items() if value is not None}
    return browser.post(url, fields)


@database_door
def get_row():
    return McpServer.objects.get()


@database_door
def page(browser, name, *args):
    return browser.get(reverse(f"admin:governance_mcpserver_{name}", args=args)).content.decode()


def names():
    return [tool.name for tool in registry if tool.name.startswith("unruly")]


async def run(executor, name, **arguments):
    return await executor.run(ToolCall(id="1", tool_name=name, input=arguments, scope="scope"))


async def test_a_server_added_in_the_admin_is_there_in_the_next_turn(executor):
    browser = await sign_in(is_superuser=True)
    assert (await add(browser)).status_code == 302
    await runtime.prepare_tools()
    assert names() == ["unruly_crash", "unruly_echo"]
    outcome = await run(executor, "unruly_echo", text="hello")
    assert outcome.result == "hello"
    assert (outcome.timeout, outcome.timeout_source) == (30.0, "tool")


async def test_health_is_shown_in_the_admin(executor):
    browser = await sign_in(is_superuser=True)
    await add(browser)
    assert "not needed yet" in await page(browser, "changelist")
    await runtime.prepare_tools()

    async def is_well():
        row = await get_row()
        return row.last_ok_at and row.tools_found

    await eventually(is_well)
    row = await get_row()
    assert {"name": "flood", "text": "It can flood."} in row.tools_found
    assert "It can flood." in await page(browser, "change", row.pk)
    await run(executor, "unruly_crash")

    async def is_noted():
        return (await get_row()).last_error == "it ended with exit code 3"

    await eventually(is_noted)
    assert "not well: it ended with exit code 3" in await page(browser, "changelist")


async def test_switching_off_and_deleting_end_the_process_at_once(executor):
    browser = await sign_in(is_superuser=True)
    await add(browser)
    await runtime.prepare_tools()
    assert tagged(f"{MARK}=rows")
    assert (await edit(browser, enabled=None)).status_code == 302
    await eventually(lambda: names() == [] and not tagged(f"{MARK}=rows"))
    await edit(browser)
    await runtime.prepare_tools()
    assert names()
    await delete_all()
    await eventually(lambda: names() == [] and not tagged(f"{MARK}=rows"))


@database_door
def delete_all():
    for row in McpServer.objects.all():
        row.delete()


async def test_an_edit_in_another_process_is_followed(executor, monkeypatch):
    browser = await sign_in(is_superuser=True)
    await add(browser)
    await runtime.prepare_tools()

    @database_door
    def as_another_process():
        McpServer.objects.update(allowed_tools=["echo"])  # sends no signal here

    await as_another_process()
    monkeypatch.setattr(servers, "_LOOK_EVERY", 0)
    await runtime.refresh_policies()
    assert names() == []  # another server now, connected when a turn begins
    await runtime.prepare_tools()
    assert names() == ["unruly_echo"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "Upper Case"}, "Write small letters"),
        ({"command": ""}, "Write the program and its arguments"),
        ({"command": "sh -c 'oops"}, "A quotation mark is not closed"),
        ({"environment": "A=secret"}, "Write names of environment variables"),
        ({"headers": "Authorization"}, "is not “Header: VARIABLE”"),
        ({"headers": "Authorization: Bearer secret"}, "Write “Header: VARIABLE”"),
        ({"transport": "http", "url": "ftp://example.org"}, "begins with http:// or https://"),
        ({"transport": "http", "url": "https://a:b@example.org"}, "Leave user name and password"),
        ({"timeout_ms": "soon"}, "is not a duration"),
        ({"timeout_ms": "8 d"}, "longer than a week"),
        ({"prefix": "a b"}, "may stand in the name of a tool"),
        ({"max_running": "0"}, "At least one call"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_words(executor, values, words):
    browser = await sign_in(is_superuser=True)
    answer = await add(browser, **values)
    assert answer.status_code == 200
    assert words in answer.content.decode()


async def test_a_row_that_makes_no_sense_does_not_stand_in_the_way_of_others(executor):
    await add(await sign_in(is_superuser=True))

    @database_door
    def past_the_checks():
        McpServer.objects.create(name="broken", command="sh -c 'oops")
        McpServer.objects.create(name="blank", command="")

    await past_the_checks()
    await runtime.prepare_tools()
    assert names() == ["unruly_crash", "unruly_echo"]


async def test_only_superusers_edit_servers(executor):
    browser = await sign_in()
    assert (await add(browser)).status_code == 403


async def test_the_form_shows_what_is_stored(executor):
    browser = await sign_in(is_superuser=True)
    await add(
        browser,
        transport="http",
        url="https://mcp.example.org/mcp",
        headers="Authorization: TOKEN\nX-Team: TEAM",
    )
    row = await get_row()
    assert row.headers == {"Authorization": "TOKEN", "X-Team": "TEAM"}
    assert row.allowed_tools == ["echo", "crash"]
    html = await page(browser, "change", row.pk)
    assert "Authorization: TOKEN\nX-Team: TEAM" in html
    assert json.dumps(row.headers) not in html
    assert 'value="30 s"' in html
