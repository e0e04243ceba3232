"""Reports the tools of each process to the others. A report is written when the tools change, and read while its
process is alive.
"""

from collections.abc import Iterable
from typing import Any

from governance import tool_reports
from governance.db import run_in_db_thread
from governance.tool_reports import ReportedTool
from turns.models import Process, ToolReport
from turns.processes import process_registry


class ToolReporter:
    """Reports the tools that are registered in this process."""

    def __init__(self) -> None:
        self._reported: Any = None

    async def report(self, process: Process) -> None:
        """Write the tools to this process's row if they have changed."""
        state = process.pk, tool_reports.registered()
        if state != self._reported:
            await _write(process, state[1])
            self._reported = state


@run_in_db_thread
def _write(process: Process, tools: Iterable[Any]) -> None:
    ToolReport.objects.bulk_create(
        [ToolReport(process=process, tools=tool_reports.describe(tools))],
        update_conflicts=True,
        unique_fields=["process"],
        update_fields=["tools"],
    )


def read() -> dict[str, ReportedTool]:
    """Return the tools that only other live processes have, as declared by the process that started last."""
    reports = ToolReport.objects.filter(process__in=process_registry.alive())
    return tool_reports.merge(
        (str(report.process), report.tools)
        for report in reports.select_related("process").order_by("-process__started_at")
        if not process_registry.is_this_process(report.process)
    )
