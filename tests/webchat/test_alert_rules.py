"""The shipped alert rules, run by Prometheus itself on what scrapes say: each fires when it should, and no sooner."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient
from prometheus_client.parser import text_string_to_metric_families

from governance.db import run_in_db_thread
from tests.turns.row_factory import make_process
from tests.webchat.staff import make_staff
from turns.processes import process_registry
from webchat import api_tokens

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None and os.environ.get("CI") != "true", reason="needs promtool"
)

RULES = Path("deploy/prometheus/alerts.yaml").resolve()
NAMES = [line.split()[-1] for line in RULES.read_text().splitlines() if "- alert:" in line]
AT = 45  # minutes, after which it is asked which rules fire
SECONDS = 15  # between two scrapes
SCRAPES = 4 * AT + 4
CALLS = "turnkeeper_tool_calls_total"
TIMEOUTS = "turnkeeper_tool_timeouts_total"
# What each rule is about, as the series of a scrape and how they go on: `start+step x times`.
TROUBLES: dict[str, dict[str, str]] = {
    "ProcessDown": {'up{job="turnkeeper-runners",instance="web-1:8000"}': f"1x100 0x{SCRAPES}"},
    "ProcessDied": {
        'turnkeeper_processes_lost{process="runner-1",role="runner",ending="died"}': f"_x170 1x{SCRAPES}"
    },
    "ProcessSilent": {
        'turnkeeper_processes_lost{process="runner-1",role="runner",ending="silent"}': f"_x170 1x{SCRAPES}"
    },
    "TurnsWait": {"turnkeeper_oldest_queued_turn_age_seconds": f"0+15x{SCRAPES}"},
    "CancelsSlow": {  # they settle between one second and two
        'turnkeeper_cancel_duration_seconds_bucket{le="1"}': f"0x{SCRAPES}",
        'turnkeeper_cancel_duration_seconds_bucket{le="2"}': f"0+1x{SCRAPES}",
        'turnkeeper_cancel_duration_seconds_bucket{le="+Inf"}': f"0+1x{SCRAPES}",
    },
    "ToolTimesOut": {  # a plain function, which is left behind
        f'{CALLS}{{tool_name="wait",status="abandoned"}}': f"0+1x{SCRAPES}",
        f'{CALLS}{{tool_name="wait",status="succeeded"}}': f"0+1x{SCRAPES}",
        f'{TIMEOUTS}{{tool_name="wait",limit="total"}}': f"0+1x{SCRAPES}",
    },
    "ToolNearLimit": {
        'turnkeeper_tool_duration_seconds_bucket{tool_name="wait",status="succeeded",limit_from="policy",le="60"}': f"0x{SCRAPES}",
        'turnkeeper_tool_duration_seconds_bucket{tool_name="wait",status="succeeded",limit_from="policy",le="120"}': f"0+1x{SCRAPES}",
        'turnkeeper_tool_duration_seconds_bucket{tool_name="wait",status="succeeded",limit_from="policy",le="+Inf"}': f"0+1x{SCRAPES}",
        'turnkeeper_tool_limit_seconds{tool_name="wait"}': f"120x{SCRAPES}",
    },
    "WorkLeftRunning": {
        'turnkeeper_tool_calls_live{state="abandoned",instance="web-1:8000"}': f"6x{SCRAPES}"
    },
    "ApprovalsWait": {"turnkeeper_oldest_approval_age_seconds": f"0+15x{SCRAPES}"},
    "HistoriesRepaired": {'turnkeeper_history_repairs_total{cause="crash"}': f"0+1x{SCRAPES}"},
    "TurnsFail": {  # neither alone would be enough
        'turnkeeper_turns_total{status="completed"}': f"0+7x{SCRAPES}",
        'turnkeeper_turns_total{status="failed"}': f"0+1x{SCRAPES}",
        'turnkeeper_turns_total{status="interrupted"}': f"0+1x{SCRAPES}",
    },
    "LimitsDiffer": {
        'turnkeeper_limits_version{instance="web-1:8000"}': f"3x{SCRAPES}",
        'turnkeeper_limits_version{instance="web-2:8000"}': f"4x{SCRAPES}",
    },
    "ChannelLayerAway": {'turnkeeper_channel_layer_up{instance="web-1:8000"}': f"0x{SCRAPES}"},
    "DatabaseSilent": {
        'turnkeeper_database_connections_cut_total{instance="web-1:8000"}': f"0x170 1x{SCRAPES}"
    },
    "DatabaseWaits": {
        'turnkeeper_database_wait_seconds_total{what="connection",instance="web-1:8000"}': f"0+45x{SCRAPES}"
    },
    "LeasesLost": {'turnkeeper_leases_lost_total{instance="web-1:8000"}': f"0x170 1x{SCRAPES}"},
}
# What looks like trouble to a rule that does not look closely, and is none.
WELL: dict[str, dict[str, str]] = {
    "ToolTimesOut": {  # the turn's limit cut them, which says nothing about the tool
        f'{CALLS}{{tool_name="wait",status="cancelled"}}': f"0+1x{SCRAPES}",
        f'{TIMEOUTS}{{tool_name="wait",limit="turn"}}': f"0+1x{SCRAPES}",
    },
    "ToolNearLimit": {  # the agent gave them another limit
        series.replace('"policy"', '"call"'): values
        for series, values in TROUBLES["ToolNearLimit"].items()
    },
    "ProcessDown": {'up{job="node",instance="web-1:9100"}': f"0x{SCRAPES}"},  # another program
    # within a second
    "CancelsSlow": dict.fromkeys(TROUBLES["CancelsSlow"], f"0+1x{SCRAPES}"),
}


def fires(tmp_path: Path, series: dict[str, str]) -> set[str]:
    """Return the names of the rules that fire at the end of these series, as promtool finds them."""
    expected = [{"alertname": name, "eval_time": f"{AT}m", "exp_alerts": []} for name in NAMES]
    test = {
        "interval": f"{SECONDS}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": expected,
    }
    file = tmp_path / "rules.json"  # which is YAML as well
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [test]}))
    run = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    said = run.stdout + run.stderr
    fired = {name for name in NAMES if f"alertname: {name}," in said or f'"{name}"' in said}
    assert bool(fired) is bool(run.returncode), said
    return fired


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_fires_on_its_trouble_and_no_other_does(tmp_path: Path, name: str):
    assert fires(tmp_path, TROUBLES[name]) == {name}


@pytest.mark.parametrize("name", WELL)
def test_a_rule_is_silent_about_what_only_looks_like_its_trouble(tmp_path: Path, name: str):
    assert fires(tmp_path, WELL[name]) == set()


async def scraped(stranger: User, **labels: str) -> dict[str, str]:
    """Return all samples of a real scrape as series that stay as they are."""
    await make_staff(stranger, "view_all")
    _row, secret = await run_in_db_thread(api_tokens.issue)(user=stranger, name="prometheus")
    answer = await AsyncClient().get("/metrics", headers={"authorization": f"Bearer {secret}"})
    return dict(_series(answer.content.decode(), labels))


def _series(text: str, labels: dict[str, str]) -> Iterator[tuple[str, str]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            shown: dict[str, Any] = {**sample.labels, **labels}
            names = ",".join(f"{name}={json.dumps(value)}" for name, value in shown.items())
            yield f"{sample.name}{{{names}}}", f"{sample.value:g}x{SCRAPES}"


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("trouble", "fired"),
    [("well", set()), ("killed", {"ProcessDied"}), ("frozen", {"ProcessSilent"})],
)
async def test_a_lost_process_is_told_by_what_is_scraped_from_another(
    tmp_path: Path, stranger: User, trouble: str, fired: set[str]
):
    def lose() -> None:
        here = {
            "boot_id": process_registry.boot_id(),
            "pid_namespace": process_registry.pid_namespace(),
        }
        plant = {"name": "runner-1", "role": "runner"}
        if trouble == "killed":
            make_process(**plant, **here, pid=2**22 + 1, start_ticks=1)
        elif trouble == "frozen":
            make_process(**plant, **here, pid=os.getppid(), start_ticks=0, age=3_600)
        else:
            process_registry.retire(make_process(**plant))
        process_registry.end_dead()

    await run_in_db_thread(lose)()
    series = await scraped(stranger, instance="web-1:8000", job="turnkeeper")
    assert (
        fires(tmp_path, series | {'up{job="turnkeeper",instance="web-1:8000"}': f"1x{SCRAPES}"})
        == fired
    )
