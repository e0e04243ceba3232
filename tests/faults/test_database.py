"""The database goes away, hangs, or drops connections: nothing runs twice, and what was lost is ended (G11)."""

import re
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from scripts.servers import Postgres, Redis
from tests.faults import measures
from tests.faults.client import ENDED
from tests.faults.cluster import DEFAULT_LEASE, LEASE, REAPED, let_pass, start_scaled
from tests.faults.conftest import MakeSite
from tests.faults.fault_injection import persist
from tests.faults.postgres_faults import connection_pids, cut_connections
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync, with_room

SPARE = 4  # connections by which the pools of two processes may still grow

pytestmark = pytest.mark.timeout(600)


@pytest.mark.long
@pytest.mark.parametrize("is_silent", [False, True], ids=["gone", "silent"])
@pytest.mark.parametrize(
    ("seconds", "lease"),
    [(5, LEASE), (15, DEFAULT_LEASE), (60, DEFAULT_LEASE)],
    ids=["5", "15", "60"],
)
def test_g11_a_database_that_is_away_for_longer_than_a_lease_ends_what_runs(
    scaled: MakeSite, postgres: Postgres, seconds: float, lease: dict[str, Any], is_silent: bool
):
    site = scaled(**lease)
    limit = lease["TURNS_LEASE_FENCE_AFTER"]
    start_scaled(site)
    client = site.client()
    conversation = client.converse()
    turn_id = client.say(conversation, 'call affect {"key": "a", "seconds": 100}')
    client.until_running(turn_id, "affect")
    owner = site.owner_of(turn_id)
    gone_at = time.monotonic()
    if is_silent:
        postgres.signal(signal.SIGSTOP)
    else:
        postgres.crash()
    eventually_sync(lambda: "The lease is lost" in owner.said, timeout=limit + 3)
    what = f"owner fences itself, limit {limit:.1f} s"
    measures.note("G11", what, time.monotonic() - gone_at)
    let_pass(seconds, since=gone_at)
    assert not site.is_ready()
    if is_silent:
        postgres.signal(signal.SIGCONT)
    else:
        postgres.start()
    back_at = time.monotonic()
    eventually_sync(lambda: site.is_ready(), timeout=PATIENCE)
    assert client.until_ended(turn_id, within=REAPED)["status"] == "interrupted"
    what = f"interrupted after the database was back, {seconds} s later"
    measures.note("G11", what, time.monotonic() - back_at)
    after = client.say(conversation, 'call affect {"key": "b"}')
    assert client.until_ended(after, within=PATIENCE)["status"] == "completed"
    what = f"the next turn completed after the database was back, {seconds} s later"
    measures.note("G11", what, time.monotonic() - back_at)
    assert site.verdict() == []


@pytest.mark.long
def test_g11_a_database_that_is_away_for_a_moment_costs_no_turn(
    scaled: MakeSite, postgres: Postgres
):
    site = scaled(**DEFAULT_LEASE)
    start_scaled(site, runners=1)
    client = site.client()
    conversation = client.converse()
    turn_id = client.say(conversation, 'call affect {"key": "a", "held": true}')
    client.until_running(turn_id, "affect")
    postgres.crash()
    let_pass(1.0)
    postgres.start()
    eventually_sync(lambda: site.is_ready(), timeout=PATIENCE)
    site.let_go()
    assert client.until_ended(turn_id, within=PATIENCE)["status"] == "completed"
    assert site.verdict() == []


def test_g11_connections_that_are_cut_cost_no_turn(scaled: MakeSite, postgres: Postgres):
    site = scaled()
    start_scaled(site)
    client = site.client()
    conversation = client.converse()
    turn_id = client.say(conversation, 'call affect {"key": "a", "held": true}')
    client.until_running(turn_id, "affect")
    cut: set[object] = set()

    def cut_others() -> set[object]:
        return cut_connections(postgres, site.database) - cut

    for _ in range(3):
        cut |= eventually_sync(cut_others)
    eventually_sync(lambda: site.is_ready(), timeout=PATIENCE)
    site.let_go()
    assert client.until_ended(turn_id, within=PATIENCE)["status"] == "completed"
    held = client.say(conversation, 'call affect {"key": "b", "seconds": 60}')
    client.until_running(held, "affect", within=PATIENCE)
    assert client.cancel(held).is_success
    assert client.until_ended(held)["status"] == "cancelled"
    assert site.verdict() == []


def test_g11_connections_that_are_cut_again_and_again_end_no_turn_and_double_nothing(
    scaled: MakeSite, postgres: Postgres
):
    site = scaled()
    start_scaled(site, runners=1)
    client = site.client()
    conversation = client.converse()
    step = 'call affect {"key": "a", "seconds": 0.1}\ncall affect {"key": "b"}'
    turn_id = persist(lambda: client.say(conversation, "\nthen\n".join([step] * 8)))
    eventually_sync(lambda: client.turn(turn_id)["calls"])

    known = 0

    def results() -> int:
        calls = persist(lambda: client.turn(turn_id))["calls"]
        return sum(call["status"] == "succeeded" for call in calls)

    def are_more() -> bool:
        return results() > known

    while known < 16:
        cut_connections(postgres, site.database)
        eventually_sync(are_more, timeout=LONG_PATIENCE)
        known = results()
    turn = client.until_ended(turn_id)
    assert (turn["status"], turn["error_code"]) == ("completed", None)
    assert [call["status"] for call in turn["calls"]] == ["succeeded"] * 16
    assert site.verdict() == []


def test_g11_connections_that_were_cut_while_they_rested_answer_nobody_with_an_error(
    scaled: MakeSite, postgres: Postgres
):
    site = scaled()
    start_scaled(site, runners=0)
    client = site.client()
    fill = ["/api/turns/active"] * 40
    with ThreadPoolExecutor(max_workers=len(fill)) as load:
        assert all(answer.is_success for answer in load.map(client.get, fill))
    cut = cut_connections(postgres, site.database)
    eventually_sync(lambda: not cut & connection_pids(postgres, site.database))
    assert [client.get(path).status_code for path in fill] == [200] * len(fill)


@pytest.mark.parametrize("server", ["serve", "uvicorn"])
def test_readiness_is_told_in_time_though_the_database_hangs(
    scaled: MakeSite, postgres: Postgres, server: str
):
    site = scaled(WEBCHAT_READY_TIMEOUT=0.5)
    if server == "serve":
        site.serve()
    else:
        site.serve_uvicorn()
    eventually_sync(site.is_ready, timeout=PATIENCE)
    postgres.signal(signal.SIGSTOP)
    try:
        for _ in range(3):  # a pool waits for ten seconds, a statement for ever
            told = httpx.get(f"{site.url()}/readyz", trust_env=False, timeout=8)
            assert (told.status_code, told.json()["database"]) == (503, False)
    finally:
        postgres.signal(signal.SIGCONT)
    eventually_sync(site.is_ready, timeout=PATIENCE)


@pytest.mark.parametrize("fault", ["gone", "silent"])
def test_redis_takes_no_process_out(scaled: MakeSite, redis: Redis, fault: str):
    site = scaled()
    start_scaled(site, runners=1)
    client = site.client()
    conversation = client.converse()
    eventually_sync(lambda: client.get("/readyz").json()["channel_layer"], timeout=PATIENCE)
    if fault == "gone":
        redis.crash()
    else:
        redis.signal(signal.SIGSTOP)
    try:
        told = client.get("/readyz")
        assert (told.status_code, told.json()["channel_layer"]) == (200, False)
        held = client.say(conversation, 'call affect {"key": "a", "seconds": 60}')
        client.until_running(held, "affect", within=PATIENCE)
        assert client.cancel(held).is_success
        assert client.until_ended(held, within=PATIENCE)["status"] == "cancelled"
    finally:
        redis.start() if fault == "gone" else redis.signal(signal.SIGCONT)
    eventually_sync(lambda: client.get("/readyz").json()["channel_layer"], timeout=PATIENCE)


@pytest.mark.parametrize("hours", [pytest.param(-1, marks=pytest.mark.long), 1])
def test_g11_a_wrong_clock_changes_nothing(
    scaled: MakeSite, postgres: Postgres, false_time: Mapping[str, str], hours: int
):
    site = scaled(TURNS_SWEEP_INTERVAL=0.5)
    start_scaled(site, runners=0)
    site.run_turns("wrong", environ={**false_time, "FAKETIME": f"{hours:+}h"})
    client = site.client()
    conversation = client.converse()
    turn_id = client.say(conversation, 'call affect {"key": "wrong"}')
    assert client.until_ended(turn_id, within=PATIENCE)["status"] == "completed"
    written = re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", site.processes["wrong"].said, re.M)
    assert written is not None
    off = datetime.fromisoformat(f"{written.group()}+00:00") - datetime.now(UTC)
    assert abs(off / timedelta(hours=hours) - 1) < 0.1  # the clock is wrong
    site.run_turns("right")
    for number in range(5):
        turn_id = client.say(conversation, f'call affect {{"key": "{number}", "seconds": 0.2}}')
        assert client.until_ended(turn_id, within=PATIENCE)["status"] == "completed"
    site.processes["right"].kill()
    held = client.say(conversation, 'call affect {"key": "held", "seconds": 60}')
    client.until_running(held, "affect")
    eventually_sync(lambda: client.turn(held)["calls"][0]["elapsed_ms"] > 1000, timeout=PATIENCE)
    assert client.turn(held)["calls"][0]["elapsed_ms"] < 1000 * with_room(30.0)
    assert client.cancel(held).is_success
    assert client.until_ended(held)["status"] == "cancelled"
    record = site.record()
    outside = postgres.run(
        "SELECT count(*) FROM turns_event e JOIN turns_turn t ON t.id = e.turn_id"
        " WHERE e.at NOT BETWEEN t.queued_at - interval '1s' AND t.ended_at + interval '1s'",
        database=site.database,
    )
    assert outside == [(0,)]
    for call in record.calls:
        turn = record.turn(call["group"])
        slack = timedelta(seconds=1)
        assert turn["started_at"] - slack <= call["started_at"] <= call["ended_at"]
        assert call["ended_at"] <= turn["ended_at"] + slack
    assert site.verdict(cancel_within=with_room(3.0)) == []


def test_two_hundred_calls_that_use_the_orm_leave_no_connection_behind(
    scaled: MakeSite, postgres: Postgres
):
    most = 8
    site = scaled(GOVERNANCE_MAX_DATABASE_THREADS=most)
    start_scaled(site, runners=1)
    client = site.client()
    conversation = client.converse()

    def ask(times: int) -> None:
        """Call the tool in one turn, and note how many connections there are meanwhile."""
        turn = client.say(conversation, "\n".join(["call ask_database"] * times))

        def ended() -> bool:
            peaks.append(len(connection_pids(postgres, site.database)))
            return client.turn(turn)["status"] in ENDED

        eventually_sync(ended, timeout=LONG_PATIENCE)
        calls = client.turn(turn)["calls"]
        assert {call["status"] for call in calls} == {"succeeded"}
        assert len(calls) == times

    peaks: list[int] = []
    ask(50)  # the pools of the processes grow, and keep what they have
    before = len(connection_pids(postgres, site.database))
    for _ in range(4):
        ask(50)
    assert max(peaks) <= before + most + SPARE
    eventually_sync(
        lambda: len(connection_pids(postgres, site.database)) <= before + SPARE, timeout=PATIENCE
    )
    assert site.verdict() == []
