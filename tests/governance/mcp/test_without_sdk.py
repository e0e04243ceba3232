"""Without the extra `mcp` everything else runs, and rows of servers say what is missing."""

import subprocess
import sys

import pytest
from django.core.checks import Tags, run_checks

from governance import ToolRegistry
from governance.mcp.tools import NOT_INSTALLED, McpTools
from governance.models import McpServer
from tests.governance.mcp.support import RecordingHealth, unruly

PROGRAM = """
import sys
sys.modules.update(mcp=None, mcp_types=None, httpx2=None)
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django
django.setup()
import governance.runtime, console.admin, governance.mcp.checks, turns.running.runtime
from governance.mcp.tools import is_installed
print("runs", is_installed())
"""


def test_governance_runs_without_the_sdk():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["runs", "False"]


async def test_a_server_without_the_sdk_is_not_well_and_offers_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    health, registry = RecordingHealth(), ToolRegistry()
    tools = McpTools(registry=registry, health=health)
    tools.apply([unruly()])
    await tools.ready()
    await tools.aclose()
    assert health.failures == [NOT_INSTALLED]
    assert len(registry) == 0


@pytest.mark.django_db
def test_the_check_names_the_servers_that_are_in_use(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)

    def found():
        messages = run_checks(tags=[Tags.database], databases=["default"])
        return [message for message in messages if message.id == "governance.W020"]

    assert found() == []
    McpServer.objects.create(name="clock", command="clock")
    McpServer.objects.create(name="off", command="off", enabled=False)
    (message,) = found()
    assert "(clock)" in message.msg
    assert "django-turnkeeper[mcp]" in message.hint
    monkeypatch.undo()
    assert found() == []
