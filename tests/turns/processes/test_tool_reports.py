"""What each process reports of its tools: written when that has changed, and never else."""

import pytest

from governance import make_tool
from governance.core.registry import registry
from tests.support import eventually
from tests.turns.row_factory import make_process
from tests.turns.statements import Asked
from tests.turns.support import in_database, row
from turns.models import Process, ToolReport
from turns.processes import tool_reports
from turns.processes.tool_reports import ToolReporter
from turns.running import runtime

pytestmark = pytest.mark.django_db(transaction=True)


async def late() -> str:
    """Come late."""
    return ""


@pytest.fixture
def newcomer():
    yield make_tool(late, name="newcomer", title="Late", timeout=7, approval="always")
    registry.unregister("newcomer")


async def names_of(process):
    report = await in_database(ToolReport.objects.filter(process=process).first)
    return [] if report is None else [tool["name"] for tool in report.tools]


async def test_a_process_reports_its_tools_and_what_comes_and_goes_later(site, settings, newcomer):
    settings.TURNS_POLL_INTERVAL = 0.05
    process = (await runtime.ensure_started()).process

    async def has(is_there):
        return is_there == ("newcomer" in (names := await names_of(process))) and "wait" in names

    await eventually(lambda: has(False))
    registry.register(newcomer)
    await eventually(lambda: has(True))
    told = (await row(ToolReport, process=process)).tools
    assert next(tool for tool in told if tool["name"] == "newcomer") == {
        "name": "newcomer",
        "title": "Late",
        "description": "Come late.",
        "server": "",
        "isolation": "async",
        "tokens": newcomer.tokens,
        "permission": "",
        "limits": {"timeout": 7, "approval": "always"},
    }
    registry.unregister("newcomer")
    await eventually(lambda: has(False))
    assert await in_database(tool_reports.read) == {}  # it is no news to this process


async def test_what_has_not_changed_is_not_written_again(transactional_db, monkeypatch, newcomer):
    process, other = await in_database(make_process), await in_database(make_process)
    reporter, asked = ToolReporter(), Asked(monkeypatch)
    await reporter.report(process)
    asked.assert_at_most(1, 1)
    asked.reset()
    await reporter.report(process)
    assert asked.statements == []
    registry.register(newcomer)
    await reporter.report(process)
    assert "newcomer" in await names_of(process)
    await reporter.report(other)  # the lease was lost: the process has another row
    assert "newcomer" in await names_of(other)


async def test_a_report_goes_with_its_process(transactional_db):
    process = await in_database(make_process)
    await ToolReporter().report(process)
    await in_database(Process.objects.filter(pk=process.pk).delete)
    assert not await in_database(ToolReport.objects.exists)
