"""The shipped alert rules. Each leads to a page of the admin that there is, and asks for numbers that are there."""

import re
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model
from django.test import AsyncClient, Client
from django.urls import resolve
from prometheus_client.parser import text_string_to_metric_families

from governance.db import run_in_db_thread

RULES = Path("deploy/prometheus/alerts.yaml").read_text("utf-8")
RUNBOOK = Path("docs/howto/alerts.md").read_text("utf-8")
ALERTS = dict(re.findall(r"- alert: (\w+)\n((?:(?! +- alert).*\n)+)", RULES))


def page_of(rule: str) -> str:
    """Return the path that a rule names, as Prometheus fills it in."""
    [page] = re.findall(r'^ +page: "(.+)"$', rule, re.MULTILINE)
    filled = re.sub(r"\{\{ \$labels\.tool_name \| urlquery \}\}", "wait", page)
    assert "{" not in filled
    return filled


def section_of(name: str) -> str:
    """Return what the runbook says of an alert."""
    return RUNBOOK.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


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
            for value, _words in getattr(spec, "lookup_choices", ())
        }
        assert {*re.findall(r"=(\w+)", path)} <= known
    elif "?" in path:
        assert "wait" in {row.name for row in page.context["rows"]}


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
        assert asked, name
        plain = {re.sub(r"_(total|bucket|count|sum)$", "", metric) for metric in asked}
        assert plain <= families.keys(), (name, plain - families.keys())
