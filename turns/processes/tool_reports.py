"""The tools of each process, as it reports them to the others. They are written when they have changed, and read while it lives."""

from collections.abc import Iterable
from typing import Any

from governance import tool_reports
from governance.db import run_in_db_thread
from turns.models import Process, ToolReport
from turns.processes import process_registry


class ToolReporter:
    """Reports the tools that are registered in this process."""

    def __init__(self) -> None:
        self._reported: Any = None

    async def report(self, process: Process) -> None:
        """Write the tools under the row of this process, unless they stand there already."""
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


def read() -> list[tuple[str, tool_reports.Report]]:
    """Return the name and the report of each other process that is alive, the youngest first."""
    reports = ToolReport.objects.filter(process__in=process_registry.alive())
    return [
        (str(report.process), report.tools)
        for report in reports.select_related("process").order_by("-process__started_at")
        if not process_registry.is_this_process(report.process)
    ]
