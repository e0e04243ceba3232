"""Any process saves limits and rules of the tools of MCP servers, whether it is connected to them or not."""

import sys

import pytest
from django.core.exceptions import ValidationError
from django.urls import reverse

from governance import ToolCall, registry, runtime, services
from governance.db import run_in_db_thread
from governance.models import McpServer, ToolPolicy
from tests.governance.mcp.support import HERE, MARK

COMMAND = f"{sys.executable} {HERE / 'unruly_server.py'}"


@pytest.fixture
def server(db):
    """The row of a server to which another process was connected once; this one never was."""
    assert not [tool.name for tool in registry if tool.name.startswith("unruly")]
    found = [{"name": "echo", "text": "It echoes."}, {"name": "crash", "text": "It crashes."}]
    return McpServer.objects.create(
        name="unruly", command=COMMAND, environment=[MARK], timeout_ms=40_000, tools_found=found
    )


@pytest.mark.usefixtures("server")
def test_limits_are_saved_by_code_in_a_process_that_is_not_connected():
    services.save_tool_policy(tool_name="unruly_echo", values={"approval": "always"}, by=None)
    assert ToolPolicy.objects.get().approval == "always"
    with pytest.raises(ValidationError, match=r"no tool named “unruly_nothing”.*unruly_crash"):
        services.save_tool_policy(tool_name="unruly_nothing", values={}, by=None)


def test_a_tool_that_the_server_may_not_offer_is_no_tool(server):
    server.allowed_tools = ["crash"]
    server.save()
    with pytest.raises(ValidationError, match="no tool named"):
        services.save_tool_policy(tool_name="unruly_echo", values={}, by=None)


@pytest.mark.usefixtures("server")
def test_an_idle_limit_is_compared_with_the_total_limit_of_the_servers_row():
    with pytest.raises(ValidationError, match=r"longer than the total limit \(40 s\)"):
        services.save_tool_policy(
            tool_name="unruly_echo", values={"idle_timeout_ms": 41_000}, by=None
        )


@pytest.mark.usefixtures("server")
def test_limits_are_saved_in_the_admin_of_a_process_that_is_not_connected(admin_client):
    url = reverse("admin:governance_toolpolicy_add")
    assert "unruly_echo (declared limit: 40 s)" in admin_client.get(url).content.decode()
    listed = admin_client.get(reverse("admin:governance_toolpolicy_changelist")).content.decode()
    assert "MCP server unruly" in listed
    form = {
        "tool_name": "unruly_echo",
        "timeout_ms": "7 s",
        "is_active": "on",
        "tool_enabled": "on",
    }
    assert admin_client.post(url, form).status_code == 302
    row = ToolPolicy.objects.get()
    assert (row.tool_name, row.timeout_ms) == ("unruly_echo", 7_000)
    page = admin_client.get(reverse("admin:governance_toolpolicy_changelist")).content.decode()
    assert "7 s (from: admin limit for this tool)" in page
    page = admin_client.get(
        reverse("admin:governance_toolpolicy_change", args=[row.pk])
    ).content.decode()
    assert "It echoes. Provided by the MCP server unruly." in page


@pytest.mark.django_db(transaction=True)
async def test_limits_that_were_saved_elsewhere_count_where_the_server_is_connected(
    monkeypatch, transactional_db
):
    monkeypatch.setenv(MARK, "limits")
    await save_limits()
    executor = await runtime.get_executor()
    try:
        await runtime.prepare_tools()
        call = ToolCall(id="1", tool_name="unruly_echo", input={"text": "x"})
        free = await executor.run(call)
        asked = await executor.run(ToolCall(id="2", tool_name="unruly_crash", input={}))
    finally:
        await runtime.close_executor()
    assert (free.result, free.timeout, free.timeout_source) == ("x", 7.0, "override")
    assert asked.error_type == "no_approver"


@run_in_db_thread
def save_limits():
    found = [{"name": "echo", "text": ""}, {"name": "crash", "text": ""}]
    McpServer.objects.create(name="unruly", command=COMMAND, environment=[MARK], tools_found=found)
    values = {"timeout_ms": 7_000, "approval": "never"}
    services.save_tool_policy(tool_name="unruly_echo", values=values, by=None)
    services.save_tool_policy(tool_name="unruly_crash", values={"approval": "always"}, by=None)
