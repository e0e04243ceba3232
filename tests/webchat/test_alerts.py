"""The shipped alert rules. Each leads to a page of the admin that there is, and asks for numbers that are there."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import AsyncClient, Client
from django.urls import resolve
from prometheus_client.parser import text_string_to_metric_families

from governance.db import run_in_db_thread
from governance.db_clock import now_minus
from tests.turns.row_factory import RowFactory, make_process, make_repair
from turns.models import CancelRequest

RULES = Path("deploy/prometheus/alerts.yaml").read_text("utf-8")
RUNBOOK = Path("docs/howto/alerts.md").read_text("utf-8")
ALERTS = dict(re.findall(r"- alert: (\w+)\n((?:(?! +- alert).*\n)+)", RULES))


def page_of(rule: str) -> str:
    """Return the path that a rule names, as Prometheus fills it in."""
    [page] = re.findall(r'^ +page: "(.+)"$', rule, re.MULTILINE)
    filled = page
    for label, value in (("tool_name", "wait"), ("cause", "crash")):
        filled = filled.replace(f"{{{{ $labels.{label} | urlquery }}}}", value)
    assert "{" not in filled
    return filled


def section_of(name: str) -> str:
    """Return what the runbook says of an alert, without its line breaks."""
    section = RUNBOOK.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    return " ".join(section.split())


def test_all_rules_are_read():
    assert len(ALERTS) == RULES.count("- alert:") > 5


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_leads_to_a_page_that_the_runbook_names(client: Client, db: None, name: str):
    client.force_login(get_user_model().objects.create_superuser("boss"))
    path = page_of(ALERTS[name])
    assert resolve(path.partition("?")[0]).app_name == "admin"
    page = client.get(path)
    assert page.status_code == 200
    plural = str(page.context["opts"].verbose_name_plural)
    assert f"*{plural[:1].upper()}{plural[1:]}*" in section_of(name)
    if "cl" in page.context:
        known = {
            str(value)
            for spec in page.context["cl"].filter_specs
            for value, _words in (*getattr(spec, "lookup_choices", ()), *_choices_of(spec))
        }
        assert {*re.findall(r"=(\w+)", path)} <= known
    elif "?" in path:
        assert "wait" in {row.name for row in page.context["rows"]}


def _choices_of(spec: Any) -> list[Any]:
    """Return the choices of a filter that Django makes of a field."""
    return list(getattr(getattr(spec, "field", None), "flatchoices", ()))


def test_the_pages_of_alerts_list_what_was_counted(client: Client, person: Any):
    client.force_login(get_user_model().objects.create_superuser("boss"))

    def shown(name: str) -> set[Any]:
        return {row.pk for row in client.get(page_of(ALERTS[name])).context["cl"].result_list}

    factory = RowFactory(person)
    turns = {status: factory.turn(status) for status in ("completed", "failed", "interrupted")}
    old = factory.turn("failed", queued_at=now_minus(timedelta(hours=2)))
    assert shown("TurnsFail") == {turns["failed"].pk, turns["interrupted"].pk} - {old.pk}
    lost = {
        ending: make_process(ending=ending, ended_at=now_minus(timedelta(minutes=30)))
        for ending in ("stopped", "died", "silent")
    }
    make_process(ending="died", ended_at=now_minus(timedelta(hours=2)))
    make_process()
    assert shown("ProcessDied") == {lost["died"].pk}
    assert shown("ProcessSilent") == shown("LeasesLost") == {lost["silent"].pk}
    requests = {
        ms: CancelRequest.objects.create(
            turn=turns["completed"],
            tool_id=str(ms),
            reason="user",
            source="button",
            requested_at=now_minus(timedelta(minutes=1)),
            settled_ms=ms,
        )
        for ms in (20, 1_500)
    }
    assert shown("CancelsSlow") == {requests[1_500].pk}
    crash = make_repair(turns["failed"], cause="crash")
    make_repair(turns["failed"], cause="timeout", tool_id="other")
    assert shown("HistoriesRepaired") == {crash.pk}


@pytest.mark.usefixtures("site")
async def test_an_alert_asks_for_numbers_that_a_scrape_has(stranger):
    def promote() -> None:
        stranger.is_staff = stranger.is_superuser = True
        stranger.save()

    await run_in_db_thread(promote)()
    client = AsyncClient()
    await client.aforce_login(stranger)
    answer = await client.get("/metrics")
    families = {
        family.name: family for family in text_string_to_metric_families(answer.content.decode())
    }
    for name, rule in ALERTS.items():
        asked = set(re.findall(r"turnkeeper_\w+", rule))
        assert asked or name == "ProcessDown", name  # Prometheus itself knows whether it answers
        plain = {re.sub(r"_(total|bucket|count|sum)$", "", metric) for metric in asked}
        assert plain <= families.keys(), (name, plain - families.keys())
