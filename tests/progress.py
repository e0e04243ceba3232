"""What a long run shows: how far it is and how long it takes from here, each failure when it happens, the dearest tests."""

import os
import time
from collections.abc import Generator
from typing import Any

import pytest

_SECONDS = "turnkeeper/seconds"  # in .pytest_cache: what each test took the last time
_CPU = "cpu seconds"
_PLAIN_PAUSE = 10.0  # seconds between two lines where they do not take each other's place
_TERMINAL_PAUSE = 0.2
_SURE_AFTER = 0.03  # of all that is expected
_DEAREST = 10
# Seconds that a test of this folder takes, as a guess for those that have never run here. The first that fits counts.
_USUAL = {
    "e2e/": 5.0,
    "faults/": 8.0,
    "projects/": 8.0,
    "setup/": 1.0,
    "governance/toolbox/": 0.12,
    "turns/chat_models/": 0.01,
    "turns/core/": 0.03,
    "turns/": 0.15,
    "webchat/": 0.07,
    "": 0.02,
}


def register(config: pytest.Config) -> None:
    """Measure each test; show the progress where the results of all workers arrive."""
    config.pluginmanager.register(CpuMeter(), "cpu-meter")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Progress(config), "progress")


class CpuMeter:
    """Notes on each report what its test has cost, with the processes that it started and waited for."""

    def __init__(self) -> None:
        self._before = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._before = _cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            report.user_properties.append((_CPU, _cpu_seconds() - self._before))
        return report


class Progress:
    """Takes the place of the dots."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._pause = _TERMINAL_PAUSE if self._terminal.isatty else _PLAIN_PAUSE
        cache = getattr(config, "cache", None)
        self._known: dict[str, float] = cache.get(_SECONDS, {}) if cache else {}
        self._remaining: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._costs: list[tuple[float, str]] = []
        self._is_over = False
        self._failed = 0
        self._total = 0
        self._expected_of_done = 0.0
        self._started_at = self._shown_at = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._expect(ids)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """Count as always, but print no letter; the summary at the end needs the word."""
        category, letter, word = yield
        return (category, letter, word) if self._is_over else (category, "", "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = self._seconds.get(report.nodeid, 0.0)
        self._seconds[report.nodeid] = spent + report.duration
        if report.failed:
            self._failed += 1
            self._say(f"FAILED {report.nodeid}{_reason(report)}", red=True)
        if report.when == "teardown":
            self._expected_of_done += self._remaining.pop(report.nodeid, 0.0)
            self._costs += [
                (float(str(cost)), report.nodeid)
                for name, cost in report.user_properties
                if name == _CPU
            ]
            self._show()

    def pytest_terminal_summary(self) -> None:
        # The workers have ended, so that they are in the sum.
        self._terminal.section("CPU")
        self._terminal.line(
            f"{_cpu_seconds():.0f} CPU seconds, all processes together. The dearest tests:"
        )
        for cost, nodeid in sorted(self._costs, reverse=True)[:_DEAREST]:
            self._terminal.line(
                f"{cost:6.1f} s CPU {self._seconds[nodeid]:6.1f} s in all  {nodeid}"
            )

    def pytest_sessionfinish(self) -> None:
        self._is_over = True
        cache = getattr(self._config, "cache", None)
        if cache and self._seconds:
            cache.set(_SECONDS, {**self._known, **self._seconds})

    def _expect(self, nodeids: list[str]) -> None:
        if not self._total:
            self._total = len(nodeids)
            self._remaining = {nodeid: self._expected(nodeid) for nodeid in nodeids}
            self._started_at = time.monotonic()

    def _expected(self, nodeid: str) -> float:
        path = nodeid.removeprefix("tests/")
        usual = next(seconds for folder, seconds in _USUAL.items() if path.startswith(folder))
        return self._known.get(nodeid, usual)

    def _show(self) -> None:
        now = time.monotonic()
        if now < self._shown_at + self._pause and self._remaining:
            return
        self._shown_at = now
        passed = now - self._started_at
        line = f"{self._total - len(self._remaining)} of {self._total} tests, {self._failed} failed, {_clock(passed)}"
        expected = sum(self._remaining.values())
        if self._remaining and self._expected_of_done > expected * _SURE_AFTER:
            left = passed * expected / self._expected_of_done
            line += f", about {_clock(left)} left"
        if self._terminal.isatty:
            self._terminal.rewrite(line, erase=True)
        else:
            self._terminal.write_line(line)

    def _say(self, line: str, **markup: bool) -> None:
        if self._terminal.isatty:
            self._terminal.rewrite("", erase=True)
            self._terminal.rewrite("")
        self._terminal.write_line(line, **markup)


def _reason(report: pytest.TestReport) -> str:
    when = "" if report.when == "call" else f" in {report.when}"
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash else report.longreprtext
    return f"{when}: {message.strip().partition(chr(10))[0]}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def _cpu_seconds() -> float:
    """Return what this process took, and all those for which it has waited."""
    return sum(os.times()[:4])
