"""The admin's page of what runs now, in processes: what one is asked on, another one does (C12, B4, B5)."""

import re

import pytest

from tests.faults.client import Administrator
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.support import PATIENCE, eventually_sync

pytestmark = pytest.mark.timeout(600)

PAGE = "/admin/turns/runningturn/"
SLOW = 'call affect {"key": "%s", "seconds": 60}'


def press(admin: Administrator, name: str, value: str, *, why: str = "") -> str:
    """Press a button; return in plain text what the page says of it in the end."""
    html = admin.submit(PAGE, **{name: value, "why": why})

    def settled() -> str:
        nonlocal html
        again = re.search(r'data-open>.*<a href="([^"]+)">', html)
        if again:  # still trying: a busy machine takes its time
            html = admin.read(again[1].replace("&amp;", "&"))
        return "" if again else result(html)

    return eventually_sync(settled)


def result(html: str) -> str:
    found = re.search(r'id="running-result"[^>]*>(.*?)</div>', html, re.DOTALL)
    assert found, html
    text = re.sub(r"<[^>]+>", "", found[1]).replace("\u00a0", " ")
    return " ".join(text.split())


def ledger(admin: Administrator) -> str:
    return admin.read(PAGE).split('id="left-behind"')[1]


def call_of(site: Site, turn_id: str) -> str:
    return str(site.client().turn(turn_id)["calls"][0]["tool_id"])


def test_a_runner_does_what_the_page_of_a_web_process_asks_for(scaled: MakeSite):
    site = scaled()
    site.run_turns("runner")
    site.serve("web", role="web")
    client, admin = site.client(), site.administrator()
    turn_id = client.say(client.converse(), SLOW % "held")
    client.until_running(turn_id, "affect")
    call_id = call_of(site, turn_id)
    assert "affect" in admin.read(PAGE, tool="affect", user="ada")

    said = press(admin, "extend", f"30:{turn_id}:{call_id}", why="nearly done")
    assert re.search(r"now has .+; it had ", said), said
    said = press(admin, "cancel", f"{turn_id}:{call_id}", why="not needed")
    assert re.search(r"stopped after \d", said), said
    assert client.until_ended(turn_id)["status"] == "completed"
    said = press(admin, "cancel", f"{turn_id}:", why="too late")
    assert "had already ended: completed" in said

    site.until_settled(within=PATIENCE)
    assert site.verdict() == []


def test_what_cannot_be_ended_is_in_the_ledger_until_it_has_ended(embedded: MakeSite):
    site = embedded()
    site.serve()
    client, admin = site.client(), site.administrator()
    turn_id = client.say(client.converse(), 'call hang {"key": "deaf", "held": true}')
    client.until_running(turn_id, "hang")
    assert "No abandoned calls." in ledger(admin)
    said = press(admin, "cancel", f"{turn_id}:{call_of(site, turn_id)}", why="hangs")
    assert "was abandoned after" in said
    assert "it may still be running" in said
    left = ledger(admin)
    assert "hang" in left
    assert "deaf" in left
    assert "thread" in left
    site.let_go()
    eventually_sync(lambda: "No abandoned calls." in ledger(admin))
    assert client.turn(turn_id)["calls"][0]["late"]["kind"] == "returned"
