"""`/metrics`: who may see it, what it counts, and that a scrape reads no history."""

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import AsyncClient
from django.test.utils import CaptureQueriesContext
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from governance import registry as tools
from governance.db import run_in_db_thread
from governance.runtime import limits_version, timeouts
from tests.turns.row_factory import RowFactory
from tests.webchat.sockets import Socket
from tests.webchat.staff import make_staff
from turns.processes import process_registry
from turns.running import metrics as numbers
from turns.running.metrics import MAX_TOOL_NAMES, ToolNames
from webchat import api_tokens, metrics
from webchat.send_queue import SendQueue

pytestmark = pytest.mark.usefixtures("site")

Connect = Callable[..., Socket]
Samples = dict[tuple[Any, ...], float]
FUNCTIONS = {
    "sum",
    "max",
    "min",
    "count",
    "rate",
    "increase",
    "histogram_quantile",
    "topk",
    "clamp_min",
}
DECLARED = "".join(
    Path(f"{name}.py").read_text() for name in ("turns/running/metrics", "webchat/socket_metrics")
)


@pytest.fixture
async def watcher(stranger: User) -> str:
    """Return the token of staff who may see everything."""
    await make_staff(stranger, "view_all")
    _row, secret = await run_in_db_thread(api_tokens.issue)(user=stranger, name="prometheus")
    return secret


async def scrape(token: str, scope: str = "all") -> Samples:
    headers = {"authorization": f"Bearer {token}"}
    answer = await AsyncClient().get("/metrics", {"scope": scope}, headers=headers)
    assert answer.status_code == 200, answer.content
    assert answer.headers["Content-Type"].startswith("text/plain")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


async def test_only_who_may_see_everybodys_turns_may_scrape(
    user_client: AsyncClient, person: User, watcher: str
):
    nobody = await AsyncClient().get("/metrics")
    assert (nobody.status_code, nobody.json()["code"]) == (401, "signed_out")
    wrong = await AsyncClient().get("/metrics", headers={"authorization": "Bearer tk_x"})
    assert wrong.status_code == 401
    mine = await user_client.get("/metrics")
    assert (mine.status_code, mine.json()["code"]) == (403, "denied")
    assert await scrape(watcher)
    assert (await user_client.post("/metrics")).status_code == 405


async def test_a_process_is_scraped_over_plain_http_where_everything_else_is_redirected(
    watcher: str, settings: Any
):
    settings.SECURE_SSL_REDIRECT = True  # as HTTPS=true has it
    assert (await AsyncClient().get("/")).status_code == 301
    assert (await AsyncClient().get("/metrics")).status_code == 401
    assert await scrape(watcher, "process")


async def test_without_the_extra_it_is_404_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(metrics, "find_spec", lambda _name: None)
    answer = await AsyncClient().get("/metrics")
    assert (answer.status_code, answer.json()["code"]) == (404, "metrics_not_installed")
    assert "django-turnkeeper[metrics]" in answer.json()["error"]


async def test_turns_calls_cancels_and_sockets_are_counted(connect: Connect, watcher: str):
    before = await scrape(watcher)
    page = await connect().open()
    await page.send(type="message", client_id="a", text="wait 0.01")
    await page.read("turn_end")
    await page.send(type="message", client_id="b", text="wait 60")
    turn_id = (await page.read("tool_start"))["turn_id"]
    during = await scrape(watcher)
    assert during["turnkeeper_turns_live",] == 1
    assert during["turnkeeper_turns_active", "running"] == 1
    assert during["turnkeeper_tool_calls_live", "running"] == 1
    assert during["turnkeeper_sockets",] == before["turnkeeper_sockets",] + 1
    [age] = [value for key, value in during.items() if key[0] == "turnkeeper_lease_age_seconds"]
    assert 0 <= age < 60
    await page.send(type="cancel_turn", op_id="o", turn_id=turn_id)
    await page.read("turn_end")
    after = await scrape(watcher)
    for key, more in (
        (("turnkeeper_turns_total", "completed"), 1),
        (("turnkeeper_turns_total", "cancelled"), 1),
        (("turnkeeper_tool_calls_total", "succeeded", "wait"), 1),
        (("turnkeeper_tool_calls_total", "cancelled", "wait"), 1),
        (("turnkeeper_tool_duration_seconds_count", "policy", "succeeded", "wait"), 1),
        (("turnkeeper_tool_duration_seconds_count", "cancelled", "policy", "wait"), 1),
        (("turnkeeper_cancel_duration_seconds_count", "button", "turn"), 1),
    ):
        assert after[key] == before.get(key, 0) + more, key
    assert after["turnkeeper_turns_active", "running"] == 0


async def test_cancel_that_waits_for_the_end_of_the_step_is_no_slow_one(
    connect: Connect, watcher: str
):
    before = await scrape(watcher)
    page = await connect().open()
    await page.send(type="message", client_id="a", text="wait 60")
    call = await page.read("tool_start")
    turn = {"turn_id": call["turn_id"]}
    await page.send(type="cancel_turn", op_id="later", mode="after_step", **turn)
    await page.read("op_result")
    await page.send(type="cancel_tool", op_id="step", tool_id=call["tool_id"], **turn)
    assert (await page.read("turn_end"))["status"] == "cancelled"
    after = await scrape(watcher)
    for what, more in (("call", 1), ("turn", 0)):
        key = ("turnkeeper_cancel_duration_seconds_count", "button", what)
        assert after[key] == before[key] + more, what


async def test_a_client_that_cannot_keep_up_is_counted_once_for_each_time(
    watcher: str, settings: Any
):
    settings.WEBCHAT_OUTBOX_FRAMES = 1
    before = await scrape(watcher)

    async def never(_: Any) -> None:
        raise AssertionError("nothing is sent")

    send_queue = SendQueue(send=never, close=never)
    for _ in range(5):
        send_queue.offer("x")
    after = await scrape(watcher)
    key = ("turnkeeper_outbox_overflows_total",)
    assert after[key] == before[key] + 1


def test_a_scrape_asks_the_database_little_however_long_its_history_is(person: User):
    process_registry.register()
    factory = RowFactory(person)
    for status in ("completed", "failed", "running", "queued"):
        factory.turn(status)
    with CaptureQueriesContext(connection) as queries:
        numbers.read_site.__wrapped__()
    assert len(queries) <= 6
    assert not any("completed" in query["sql"] for query in queries)


async def test_a_process_and_the_site_are_scraped_apart(watcher: str):
    process, site = await scrape(watcher, "process"), await scrape(watcher, "site")
    assert process.keys().isdisjoint(site)
    assert ("turnkeeper_turns_live",) in process
    assert ("turnkeeper_sockets",) in process
    assert ("turnkeeper_approvals_waiting",) in site
    both = await scrape(watcher)
    assert both.keys() >= {key for key in process | site if not key[0].startswith("process_")}
    headers = {"authorization": f"Bearer {watcher}"}
    wrong = await AsyncClient().get("/metrics", {"scope": "x"}, headers=headers)
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_scope")


async def test_series_begin_at_zero_and_come_without_the_time_of_their_creation(watcher: str):
    samples = await scrape(watcher, "process")
    for tool in tools:
        for status in ("succeeded", "timed_out"):
            assert ("turnkeeper_tool_calls_total", *sorted((status, tool.name))) in samples
    for series in (
        ("turnkeeper_turns_total", "interrupted"),
        ("turnkeeper_history_repairs_total", "crash"),
        ("turnkeeper_history_repairs_total", "timeout"),
        ("turnkeeper_cancel_duration_seconds_count", "button", "call"),
        ("turnkeeper_cancel_duration_seconds_count", "admin", "turn"),
        ("turnkeeper_turn_errors_total", "step_limit"),
        ("turnkeeper_model_tokens_total", "output"),
    ):
        assert (series[0], *sorted(series[1:])) in samples, series
    assert not any(key[0].endswith("_created") for key in samples)
    names = {key[0] for key in samples}
    assert {"turnkeeper_build_info", "python_info", "process_open_fds"} <= names


async def test_a_client_that_asks_for_openmetrics_gets_it(watcher: str):
    accept = "application/openmetrics-text;version=1.0.0"
    headers = {"authorization": f"Bearer {watcher}", "accept": accept}
    answer = await AsyncClient().get("/metrics", headers=headers)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    text = answer.content.decode()
    assert text.endswith("# EOF\n")
    assert {family.name for family in openmetrics(text)} >= {
        "turnkeeper_turns",
        "turnkeeper_sockets",
    }


async def test_the_limit_in_force_and_what_waits_for_a_person_are_told(
    connect: Connect, watcher: str, settings: Any
):
    settings.GOVERNANCE_APPROVAL = {"wait": "always"}
    page = await connect().open()
    await page.send(type="message", client_id="a", text="wait 0.01")
    asked = await page.read("tool_approval")
    during = await scrape(watcher)
    assert during["turnkeeper_approvals_waiting",] == 1
    assert during["turnkeeper_oldest_approval_age_seconds",] >= 0
    assert during["turnkeeper_tool_limit_seconds", "wait"] == timeouts()["wait"]
    assert during["turnkeeper_limits_version",] == limits_version()
    ids = {"turn_id": asked["turn_id"], "tool_id": asked["tool_id"]}
    await page.send(type="decide_tool", op_id="d", decision="deny", **ids)
    await page.read("turn_end")
    after = await scrape(watcher)
    assert after["turnkeeper_approvals_waiting",] == 0
    assert after["turnkeeper_oldest_approval_age_seconds",] == 0


async def test_repairs_errors_tokens_and_work_that_may_go_on_are_counted(watcher: str):
    sink = numbers.MetricsSink()
    before = await scrape(watcher, "process")
    repair = {"tool_id": "t", "kind": "added_result", "cause": "CRASH"}
    end = {"status": "failed", "duration_ms": 1, "error_code": "token_limit"}
    call = {
        "tool_name": "wait",
        "status": "abandoned",
        "duration_ms": 5,
        "error_type": "timeout",
        "timeout_source": "tool",
        "limit_reached": "total",
    }
    hint = call | {"status": "timed_out", "timeout_source": "hint", "duration_ms": 700}
    idle = hint | {"limit_reached": "idle"}
    turn = hint | {"status": "cancelled", "error_type": "cancelled", "limit_reached": "turn"}
    never_ran = turn | {"status": "not_started", "duration_ms": 0}
    for event in (
        {"type": "history_repaired", "repairs": [repair, repair]},
        {"type": "turn_end", "usage": {"input_tokens": 7, "output_tokens": 2}, **end},
        {"type": "tool_result", "disposition": "indeterminate", **call},
        *(
            {"type": "tool_result", "disposition": "settled", **ended}
            for ended in (hint, hint, idle, turn)
        ),
        {"type": "tool_result", "disposition": "not_started", **never_ran},
        {"type": "error", "code": "fallback"},
        {"type": "error", "code": "retrying"},
        {"type": "text_delta", "text": "counted by nobody"},
    ):
        await sink.publish(uuid4(), event)
    after = await scrape(watcher, "process")
    for key, more in (
        (("turnkeeper_history_repairs_total", "CRASH"), 2),
        (("turnkeeper_model_fallbacks_total",), 1),
        (("turnkeeper_turn_errors_total", "token_limit"), 1),
        (("turnkeeper_model_tokens_total", "input"), 7),
        (("turnkeeper_model_tokens_total", "output"), 2),
        (("turnkeeper_tool_calls_indeterminate_total", "wait"), 1),
        (("turnkeeper_tool_timeouts_total", "total", "wait"), 1),  # a plain function
        (("turnkeeper_tool_timeouts_total", "hint", "wait"), 2),
        (("turnkeeper_tool_timeouts_total", "idle", "wait"), 1),
        (("turnkeeper_tool_timeouts_total", "turn", "wait"), 1),
    ):
        assert after[key] == before.get(key, 0) + more, key


def test_alerts_and_dashboard_ask_for_metrics_that_exist():
    known = set(re.findall(r'"(turnkeeper_\w+)"', DECLARED))
    known |= {f"turnkeeper_{name}" for name in re.findall(r'_gauge\(\s*"(\w+)"', DECLARED)}
    for file in (Path("deploy/prometheus/alerts.yaml"), Path("deploy/grafana/turnkeeper.json")):
        asked = set(re.findall(r"turnkeeper_\w+", file.read_text())) - {"turnkeeper_alerts"}
        assert asked, file
        plain = {re.sub(r"_(total|bucket|count|sum|info)$", "", name) for name in asked}
        assert plain <= known, (file, plain - known)


def expressions() -> list[str]:
    """Return what the alert rules and the panels of the dashboard ask Prometheus for."""
    rules = Path("deploy/prometheus/alerts.yaml").read_text()
    asked = re.findall(r"expr: (?:>-\n)?((?:.|\n)+?)(?=\n\s+(?:for|labels):)", rules)
    panels = json.loads(Path("deploy/grafana/turnkeeper.json").read_text())["panels"]
    return [*asked, *(target["expr"] for panel in panels for target in panel.get("targets", ()))]


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_has_its_brackets_and_functions_and_labels_that_exist(expression: str):
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    functions = set(re.findall(r"(\w+)\s*\(", expression)) - {"by", "and", "or", "unless", "on"}
    assert functions <= FUNCTIONS
    labels = set(re.findall(r"(\w+)\s*[=!]~?\"", expression))
    labels |= {
        name for names in re.findall(r"by \(([^)]*)\)", expression) for name in names.split(", ")
    }
    declared = set(re.findall(r'"([a-z_]+)"', DECLARED))
    assert labels <= declared | {"le", "instance", "job"}


def test_each_alert_has_its_place_in_the_runbook():
    alerts = re.findall(r"alert: (\w+)", Path("deploy/prometheus/alerts.yaml").read_text())
    headings = re.findall(r"^## (\w+)$", Path("docs/howto/alerts.md").read_text(), re.M)
    assert alerts
    assert sorted(alerts) == sorted(headings)


def test_the_names_of_tools_are_bounded():
    tools = {f"tool {number}" for number in range(1000)}
    names = ToolNames(tools)
    assert {names.label(f"made_up_{number}") for number in range(1000)} == {"unknown"}
    assert names.label("tool 1") == "tool 1"
    labels = {names.label(name) for name in tools}
    assert len(labels) == MAX_TOOL_NAMES + 1
    assert "other" in labels
    tools.clear()  # their server has gone: a series goes on
    assert names.label("tool 1") == "tool 1"


async def test_a_model_cannot_fill_the_labels_nor_draw_durations_to_zero(
    connect: Connect, watcher: str, settings: Any
):
    settings.GOVERNANCE_APPROVAL = {"exec": "always"}
    before = await scrape(watcher)
    page = await connect().open()
    invented = "\n".join(f"call made_up_{number} {{}}" for number in range(20))
    await page.send(type="message", client_id="a", text=f"{invented}\nrun echo hi")
    asked = await page.read("tool_approval")
    await page.send(
        type="decide_tool",
        op_id="d",
        turn_id=asked["turn_id"],
        tool_id=asked["tool_id"],
        decision="deny",
    )
    await page.read("turn_end")
    after = await scrape(watcher)
    assert not any("made_up" in str(key) for key in after)
    unknown = ("turnkeeper_tool_calls_total", "failed", "unknown")
    assert after[unknown] == before.get(unknown, 0) + 20
    assert after["turnkeeper_tool_calls_total", "denied", "exec"] >= 1

    def measured(samples: Samples) -> float:
        count = "turnkeeper_tool_duration_seconds_count"
        return sum(value for key, value in samples.items() if key[0] == count)

    assert measured(after) == measured(before)


def test_a_runner_answers_on_a_port_of_its_own():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            numbers.serve(port, host="127.0.0.1")
    server = numbers.serve(port, host="127.0.0.1")
    try:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    finally:
        server.shutdown()
        server.server_close()
    assert "turnkeeper_turns_live" in text
