"""A tool that only a runner has is tuned in the admin of a web process (acceptance H, point 1)."""

import re

import pytest

from tests.faults.client import Administrator
from tests.faults.conftest import MakeSite
from tests.support import PATIENCE, eventually_sync

pytestmark = pytest.mark.timeout(600)

LIMITS = "/admin/governance/toolpolicy/"


def row_of(admin: Administrator, tool: str) -> str:
    """The row of a tool on the page of limits as text; empty if it has none."""
    html = admin.read(LIMITS, q=tool)
    found = re.search(rf'<th scope="row"><a [^>]*>{tool}</a>.*?</tr>', html, re.DOTALL)
    text = re.sub(r"<[^>]+>", " ", found[0]) if found else ""
    return " ".join(text.replace("\u00a0", " ").split())


def test_a_tool_of_a_runner_gets_its_limit_in_the_admin_of_a_web_process(scaled: MakeSite):
    site = scaled()
    runner = site.run_turns("runner", "--name", "runner-1", environ={"FAULTS_TOOL": "deploy"})
    site.serve("web", role="web")
    client, admin = site.client(), site.administrator()
    row = eventually_sync(lambda: row_of(admin, "deploy"))
    assert "45 s (from: the tool)" in row
    assert "reported by runner-1" in row
    assert "reported by" not in row_of(admin, "affect")

    fields = {"timeout_ms": "1 s", "tool_enabled": "on", "revision": ""}
    admin.submit(LIMITS, **{f"deploy-{name}": value for name, value in fields.items()})
    turn_id = client.say(client.converse(), "call deploy {}")
    assert client.until_ended(turn_id)["status"] == "completed"
    [call] = client.turn(turn_id)["calls"]
    assert (call["tool_name"], call["status"]) == ("deploy", "timed_out")

    runner.kill()
    eventually_sync(lambda: "not installed" in row_of(admin, "deploy"), timeout=PATIENCE)
