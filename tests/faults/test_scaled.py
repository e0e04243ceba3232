"""Web processes, runners and what is between them: PostgreSQL, Redis (C12, G1, G2, G6)."""

import itertools
import re
import signal
import sys
import time

import pytest

from scripts.servers import Postgres, Redis
from tests.faults import measures
from tests.faults.bounds import BUSY, CANCEL_BY_POLL
from tests.faults.conftest import MakeSite
from tests.faults.site import SCALED, Site, environment
from tests.fork_server import ROOT
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync, run_program, with_room

SLOW = 'call affect {"key": "%s", "seconds": 600}'
POLL = 40.0  # seconds: whoever obeys sooner was told
BY_HINT = POLL / 2  # from a wish to its effect; a tenth of a second on an idle machine


def start(site: Site, *, webs: int = 1, runners: int = 1) -> None:
    for number in range(runners):
        site.run_turns(f"runner{number}")
    for number in range(webs):
        site.serve("web" if not number else f"web{number}", role="web")


def cancel_and_time(site: Site, turn_id: str, *, web: str = "web") -> float:
    watcher = site.watch(site.client().turn(turn_id)["conversation_id"], web)
    asked_at = time.monotonic()
    assert site.client(web).cancel(turn_id).status_code == 200
    watcher.until("turn_end", turn_id=turn_id)
    return time.monotonic() - asked_at


def gaps_between_turns(site: Site, conversation: str) -> list[float]:
    turns = [row for row in site.record().turns if str(row["conversation_id"]) == conversation]
    turns.sort(key=lambda row: row["number"])
    return [
        (after["started_at"] - before["ended_at"]).total_seconds()
        for before, after in itertools.pairwise(turns)
    ]


@pytest.mark.timeout(600)
def test_c12_g01_g06_turns_run_in_runners_and_are_seen_and_cancelled_from_every_web_process(
    scaled: MakeSite,
):
    site = scaled(TURNS_POLL_INTERVAL=POLL)
    start(site, webs=2, runners=2)
    client, other = site.client(), site.client("web1")
    conversation = client.converse()
    near, far = site.watch(conversation, "web"), site.watch(conversation, "web1")
    turn_id = client.say(conversation, "slowly one two three")
    for watcher in (near, far):
        watcher.until("text_delta", turn_id=turn_id)
        watcher.until("turn_end", turn_id=turn_id, status="completed")
    assert site.owner_of(turn_id).name.startswith("runner")
    roles = {row["role"]: row["has_shared_layer"] for row in site.record().processes}
    assert roles == {"web": True, "runner": True}

    held = client.say(conversation, SLOW % "held")
    client.until_running(held, "affect")
    [call] = client.turn(held)["calls"]
    path = f"/api/turns/{held}/tools/{call['tool_id']}/deadline"
    asked_at = time.monotonic()
    assert client.post(path, {"timeout_ms": 90_000}).json()["timeout_ms"] == 90_000
    far.until("tool_deadline", turn_id=held, timeout_ms=90_000, changed_by="ada")
    assert time.monotonic() - asked_at < BY_HINT
    assert cancel_and_time(site, held, web="web1") < BY_HINT

    queue = client.converse()
    for _ in range(6):
        client.say(queue, 'call affect {"key": "queued"}')
    site.until_settled(within=LONG_PATIENCE)
    gaps = gaps_between_turns(site, queue)
    assert all(0 <= gap < BY_HINT for gap in gaps), gaps

    site.processes["runner1"].kill()
    site.run_turns("runner0", settings={"TURNS_POLL_INTERVAL": 1.0})  # nobody will tell it
    held = client.say(conversation, SLOW % "held")
    client.until_running(held, "affect")
    site.arm("web", "after_cancel_stored")
    client.cancel_with_the_dying(held)
    assert site.processes["web"].wait(within=PATIENCE) == -9
    assert other.until_ended(held, within=PATIENCE)["status"] == "cancelled"
    assert site.verdict() == []


@pytest.mark.timeout(600)
def test_g02_without_redis_a_cancel_takes_a_poll_and_turns_run_on(scaled: MakeSite, redis: Redis):
    site = scaled(TURNS_POLL_INTERVAL=1.0)
    start(site)
    client = site.client()
    conversation = client.converse()

    def cancel(turn_id: str, *, redis_is: str) -> None:
        assert client.cancel(turn_id).status_code == 200
        assert client.until_ended(turn_id)["status"] == "cancelled"
        measures.note("G2", f"cancel, Redis is {redis_is}", site.record().cancel_seconds(turn_id))

    held = {}
    for key in ("stopped", "hanging"):
        held[key] = client.say(client.converse(), SLOW % key)
        client.until_running(held[key], "affect")
    redis.signal(signal.SIGSTOP)
    try:
        cancel(held["hanging"], redis_is="hanging")
        began_at = time.monotonic()
        turn = client.say(conversation, "slowly " + "word " * 40)
        assert client.until_ended(turn, within=PATIENCE)["status"] == "completed"
        assert time.monotonic() - began_at < with_room(10.0)
    finally:
        redis.signal(signal.SIGCONT)
    redis.crash()
    cancel(held["stopped"], redis_is="stopped")
    assert client.until_ended(client.say(conversation, "help"))["status"] == "completed"
    redis.start()
    again = client.say(conversation, SLOW % "b")
    client.until_running(again, "affect")
    cancel(again, redis_is="back")
    assert site.verdict(cancel_within=CANCEL_BY_POLL + BUSY) == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_g10_g11_runners_come_and_go_and_outlive_their_database(
    scaled: MakeSite, postgres: Postgres
):
    site = scaled(TURNS_DRAIN_GRACE=0.5)
    start(site, runners=0)
    client = site.client()
    conversation = client.converse()

    early = client.say(conversation, "help")
    runner = site.run_turns("runner")
    assert client.until_ended(early)["status"] == "completed"

    postgres.crash()
    eventually_sync(lambda: "No turns are heard of" in runner.said, timeout=PATIENCE)
    postgres.start()
    eventually_sync(site.is_ready, timeout=PATIENCE)
    turn = client.say(conversation, "help")
    assert client.until_ended(turn, within=PATIENCE)["status"] == "completed"

    held = client.say(conversation, SLOW % "held")
    client.until_running(held, "affect")
    runner.terminate()
    behind = client.say(conversation, "help")
    assert runner.wait(within=PATIENCE) == 0, runner.said
    ended = client.turn(held)
    assert (ended["status"], ended["ended_by_reason"]) == ("interrupted", "shutdown")
    assert client.turn(behind)["status"] == "queued"
    site.run_turns("runner")
    assert client.until_ended(behind, within=PATIENCE)["status"] == "completed"
    assert site.verdict() == []


@pytest.mark.timeout(600)
def test_one_runner_with_room_is_told_of_a_turn_that_is_stored_and_of_no_other(scaled: MakeSite):
    site = scaled()
    run = run_program(
        [sys.executable, "-m", "tests.faults.dispatching"],
        cwd=ROOT,
        env=environment(site.var, database_url=site.database_url) | SCALED,
    )
    assert run.returncode == 0, run.stderr
    assert "A turn was not dispatched" in run.stderr


ONCE = 3600.0  # seconds between two rounds: what is asked is asked for turns
QUIET: dict[str, float] = {
    "TURNS_POLL_INTERVAL": ONCE,
    "TURNS_SWEEP_INTERVAL": ONCE,
    "TURNS_LEASE_RENEW_INTERVAL": ONCE / 4,
    "TURNS_LEASE_FENCE_AFTER": ONCE / 2,
    "TURNS_LEASE_TTL": ONCE,
}


class Statements:
    """What PostgreSQL writes down of the processes of a site from now on, by their application name."""

    def __init__(self, postgres: Postgres, site: Site) -> None:
        postgres.run("ALTER SYSTEM SET log_line_prefix = '%a|%d '")
        postgres.run("SELECT pg_reload_conf()")
        postgres.run(f"ALTER DATABASE \"{site.database}\" SET log_statement = 'all'")
        self._log = postgres.directory / "log.txt"
        self._beginning = re.compile(rf"turnkeeper (?:web|runner)\|{site.database} ")
        self.reset()

    def reset(self) -> None:
        self._read = self._log.stat().st_size

    def lines(self, containing: str = "") -> list[str]:
        with self._log.open("rb") as log:
            log.seek(self._read)
            lines = log.read().decode("utf-8", "replace").splitlines()
        ours = [line for line in lines if self._beginning.match(line)]
        return [line for line in ours if re.search(containing, line)]


@pytest.mark.timeout(600)
def test_a_turn_asks_as_much_of_postgresql_however_many_runners_there_are(
    scaled: MakeSite, postgres: Postgres
):
    site = scaled(**QUIET)
    statements = Statements(postgres, site)
    start(site, runners=0)
    client = site.client()
    conversations = [client.converse() for _ in range(12)]
    asked = {}
    for count in (1, 2, 4):
        while len(site.processes) - 1 < count:
            site.run_turns(f"runner{len(site.processes)}")
        for _round in range(2):  # each runner loads what stays loaded
            statements.reset()
            for conversation in conversations:
                client.say(conversation, "help")
                site.until_settled(within=PATIENCE)
        asked[count] = len(statements.lines("LOG: .*(statement|execute)")) / len(conversations)
    assert max(asked.values()) <= 1.05 * min(asked.values()), asked


@pytest.mark.timeout(600)
def test_a_backlog_costs_nothing_while_it_waits(scaled: MakeSite, postgres: Postgres):
    site = scaled(**{**QUIET, "TURNS_SWEEP_INTERVAL": 0.1})
    statements = Statements(postgres, site)
    start(site, webs=2, runners=0)
    client = site.client()
    conversations = [client.converse() for _ in range(20)]
    turns = [client.say(conversation, "help") for conversation in conversations]
    statements.reset()
    sweep = "turns_process.*seen_at"
    eventually_sync(lambda: len(statements.lines(sweep)) > 20, timeout=PATIENCE)
    assert statements.lines("UPDATE|INSERT|ERROR") == []
    site.run_turns("runner", "--concurrency", "3")
    assert {client.until_ended(turn)["status"] for turn in turns} == {"completed"}
