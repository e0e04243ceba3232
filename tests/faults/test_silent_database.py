"""Something between a process and its database takes all bytes and forgets them: the process comes back by itself (G11)."""

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from scripts.servers import Postgres
from tests.faults.cluster import DEFAULT_LEASE, LEASE, REAPED, let_pass
from tests.faults.conftest import MakeSite
from tests.faults.silent_proxy import silent_proxy
from tests.support import PATIENCE, eventually_sync, with_room

SILENCE = 25.0
ANSWERS = with_room(30.0)  # seconds in which all waits for answers that are lost are over

pytestmark = pytest.mark.timeout(600)


def test_g11_a_runner_and_a_web_process_come_back_from_a_database_that_never_answered(
    scaled: MakeSite, postgres: Postgres
):
    site = scaled(**DEFAULT_LEASE)
    with silent_proxy(postgres.port) as proxy:
        behind = {
            "DATABASE_URL": site.database_url.replace(f"127.0.0.1:{postgres.port}", proxy.address)
        }
        runner = site.run_turns("runner", environ=behind)
        web = site.serve("web", role="web", environ=behind)
        site.serve("other", role="web")
        client = site.client("other")
        conversation = client.converse()
        turn_id = client.say(conversation, 'call affect {"key": "a", "seconds": 100}')
        client.until_running(turn_id, "affect")
        began_at = time.monotonic()
        proxy.is_silent = True
        eventually_sync(lambda: "The lease is lost" in runner.said, timeout=SILENCE)
        assert client.until_ended(turn_id, within=REAPED)["status"] == "interrupted"
        let_pass(SILENCE, since=began_at)
        proxy.is_silent = False
        eventually_sync(lambda: site.is_ready("web"), timeout=ANSWERS)
        # Only that runner can: it fetches turns, polls for cancels, and stores what happens.
        after = client.say(conversation, 'call affect {"key": "b", "seconds": 100}')
        client.until_running(after, "affect", within=ANSWERS)
        assert site.client("web").cancel(after).is_success
        assert client.until_ended(after, within=PATIENCE)["status"] == "cancelled"
        assert runner.is_alive
        assert web.is_alive
        told = site.client("web", user="root").get("/metrics?scope=process").text
        assert "turnkeeper_leases_lost_total 1.0" in told
        [cut] = re.findall(r"^turnkeeper_database_connections_cut_total (\S+)", told, re.MULTILINE)
        assert float(cut) > 0
        assert site.verdict() == []


def waiting(postgres: Postgres, database: str) -> list[tuple[object, ...]]:
    query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
    return postgres.run(query, database)


@pytest.mark.long
def test_g11_a_process_that_cannot_come_back_leaves_and_works_when_it_is_started_again(
    scaled: MakeSite, postgres: Postgres
):
    site = scaled(**LEASE)
    with silent_proxy(postgres.port) as proxy, ThreadPoolExecutor(max_workers=4) as visitors:
        address = f"127.0.0.1:{postgres.port}"
        behind = {
            "DATABASE_URL": site.database_url.replace(address, proxy.address),
            "DATABASE_POOL_SIZE": "3",
        }
        web = site.serve("web", role="web", environ=behind)
        administrator = site.administrator("web")
        with psycopg.connect(site.database_url) as holder:
            holder.execute("LOCK TABLE django_session")
            # Django's own threads wait, with all connections of the pool, and are never answered.
            lost = [visitors.submit(administrator.read, "/admin/") for _ in range(4)]
            eventually_sync(lambda: len(waiting(postgres, site.database)) == 3)
            proxy.is_silent = True
        eventually_sync(lambda: "The lease is lost" in web.said, timeout=REAPED)
        proxy.is_silent = False
        assert web.wait(within=with_room(60.0)) == os.EX_TEMPFAIL
        assert "it leaves with exit code 75" in web.said
        assert all(visit.exception() for visit in lost)
        site.serve("web", role="web", environ=behind)
        eventually_sync(site.is_ready, timeout=PATIENCE)
