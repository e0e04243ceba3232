"""SIGTERM and Ctrl-C: what runs may end, or is ended, and the process leaves in time whatever hangs (G10).

Acceptance 95. The spans are small here; by default a process has 15 s for its turns and has left after 25.
"""

import signal
import time
from collections.abc import Callable

import pytest

from tests.faults import measures
from tests.faults.bounds import BUSY_EXIT, PATIENT_EXIT
from tests.faults.cluster import DEFAULT_LEASE
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.processes import Process, owned_by
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync, with_room
from turns.conf import TurnsSettings
from turns.running.draining import ABANDON_AFTER, EXIT_UNCLEAN, HURRY_BOUND, LAST_BOUND, WRITE_BOUND

GRACE = 0.5
EXIT_BOUND = GRACE + ABANDON_AFTER + WRITE_BOUND + BUSY_EXIT
TERMINATED = {0, -15}  # uvicorn ends by the signal that it was sent
RESTARTING = {1012, 4012}  # plain Daphne cannot send the first

Start = Callable[..., Process]
SERVERS = {"serve": Site.serve, "daphne": Site.serve_daphne, "uvicorn": Site.serve_uvicorn}
SERVE_OFTEN = [
    pytest.param(Site.serve, id="serve"),
    pytest.param(Site.serve_daphne, id="daphne", marks=pytest.mark.long),
    pytest.param(Site.serve_uvicorn, id="uvicorn", marks=pytest.mark.long),
]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(params=SERVERS)
def start(request: pytest.FixtureRequest) -> Start:
    """Return what starts each of the servers."""
    return SERVERS[request.param]


def seconds_to_exit(
    process: Process, *, grace: float = GRACE, bound: float = EXIT_BOUND
) -> tuple[int, float]:
    started = time.monotonic()
    code = process.wait(within=bound)
    passed = time.monotonic() - started
    measures.note("G10", f"exit with {code}, grace {grace:g} s", passed)
    return code, passed


def test_g10_what_ends_within_the_grace_is_not_cancelled_and_the_server_answers_meanwhile(
    embedded: MakeSite, start: Start
):
    site = embedded(TURNS_DRAIN_GRACE=LONG_PATIENCE)
    process = start(site, environ=PATIENT_EXIT)
    client = site.client()
    conversation = client.converse()
    watcher = site.watch(conversation)
    turn_id = client.say(conversation, 'call affect {"key": "a", "held": true}')
    client.until_running(turn_id, "affect")
    process.terminate()
    eventually_sync(lambda: not site.is_ready())
    assert client.get("/healthz").is_success
    eventually_sync(lambda: site.record().processes[0]["draining_at"])
    behind = client.say(conversation, 'call affect {"key": "behind"}')
    site.let_go()
    code, _passed = seconds_to_exit(process, bound=PATIENCE)
    assert code in TERMINATED, process.said
    eventually_sync(lambda: RESTARTING & {*watcher.close_codes[:1]})
    assert watcher.find("turn_end", turn_id=turn_id)["status"] == "completed"
    record = site.record()
    assert record.turn(behind)["status"] == "queued"
    assert all(row["ended_at"] for row in record.processes)
    start(site)
    assert site.client().until_ended(behind)["status"] == "completed"
    assert site.verdict() == []


@pytest.mark.long
def test_g10_a_cancel_is_obeyed_while_the_process_drains(embedded: MakeSite, start: Start):
    site = embedded(TURNS_DRAIN_GRACE=60.0)
    process = start(site, environ=PATIENT_EXIT)
    client = site.client()
    turn_id = client.say(client.converse(), 'call affect {"key": "a", "seconds": 60}')
    client.until_running(turn_id, "affect")
    process.terminate()
    eventually_sync(lambda: not site.is_ready())
    assert client.cancel(turn_id).is_success
    code, passed = seconds_to_exit(process)
    assert (code in TERMINATED, passed < EXIT_BOUND) == (True, True), (code, passed, process.said)
    assert site.record().turn(turn_id)["status"] == "cancelled"
    assert site.verdict(cancel_within=with_room(3.0)) == []


@pytest.mark.parametrize(
    "tool",
    ["swallow", *(pytest.param(t, marks=pytest.mark.long) for t in ("affect", "hang", "ignore"))],
)
def test_g10_what_does_not_end_within_the_grace_is_interrupted_by_the_shutdown(
    embedded: MakeSite, start: Start, tool: str
):
    site = embedded(TURNS_DRAIN_GRACE=GRACE)
    process = start(site)
    client = site.client()
    turn_id = client.say(client.converse(), f'call {tool} {{"key": "a", "seconds": 60}}')
    client.until_running(turn_id, tool)
    process.terminate()
    code, passed = seconds_to_exit(process)
    assert passed < GRACE + BUSY_EXIT + LAST_BOUND + WRITE_BOUND, process.said
    assert code in (*TERMINATED, EXIT_UNCLEAN)
    turn = site.record().turn(turn_id)
    assert (turn["status"], turn["ended_by_reason"]) == ("interrupted", "shutdown")
    [call] = site.record().calls_of(turn_id)
    assert call["ended_by_reason"] == "shutdown"
    assert site.verdict() == []
    eventually_sync(lambda: not owned_by(site.var))


@pytest.mark.long
@pytest.mark.parametrize("tool", ["swallow", "block"])
def test_g10_with_the_default_grace_a_process_has_left_after_25_seconds(
    embedded: MakeSite, start: Start, tool: str
):
    site = embedded(**DEFAULT_LEASE)
    process = start(site)
    client = site.client()
    client.say_unanswered(client.converse(), f'call {tool} {{"key": "a", "seconds": 60}}')
    eventually_sync(lambda: site.effects())
    process.terminate()
    _code, passed = seconds_to_exit(process, grace=TurnsSettings.DRAIN_GRACE, bound=25.0)
    assert passed > TurnsSettings.DRAIN_GRACE
    [turn] = site.record().turns
    assert (turn["status"], turn["ended_by_reason"]) == ("interrupted", "shutdown")
    assert site.verdict() == []


@pytest.mark.parametrize("is_hurried", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("serve", SERVE_OFTEN)
def test_g10_a_blocked_event_loop_cannot_keep_the_process(
    embedded: MakeSite, serve: Start, is_hurried: bool
):
    site = embedded(TURNS_DRAIN_GRACE=GRACE)
    process = serve(site)
    client = site.client()
    client.say_unanswered(client.converse(), 'call block {"key": "a", "seconds": 60}')
    eventually_sync(lambda: "The event loop has been held up" in process.own_words)
    process.signal_aside(signal.SIGTERM)
    if is_hurried:
        process.signal_aside(signal.SIGINT)
    code, passed = seconds_to_exit(process)
    bound = HURRY_BOUND + WRITE_BOUND + BUSY_EXIT if is_hurried else EXIT_BOUND
    assert (code, passed < bound) == (EXIT_UNCLEAN, True)
    [turn] = site.record().turns
    assert (turn["status"], turn["ended_by_reason"]) == ("interrupted", "shutdown")
    assert all(row["ended_at"] for row in site.record().processes)
    assert site.verdict() == []


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_g10_a_second_signal_hurries(embedded: MakeSite, start: Start, number: signal.Signals):
    site = embedded(TURNS_DRAIN_GRACE=60.0)
    process = start(site)
    client = site.client()
    turn_id = client.say(client.converse(), 'call swallow {"key": "a", "seconds": 60}')
    client.until_running(turn_id, "swallow")
    process.signal(number)
    eventually_sync(lambda: "Waiting up to" in process.own_words)
    process.signal(number)
    _code, passed = seconds_to_exit(process)
    assert passed < HURRY_BOUND + WRITE_BOUND + BUSY_EXIT
    turn = site.record().turn(turn_id)
    assert (turn["status"], turn["ended_by_reason"]) == ("interrupted", "shutdown")
    assert site.verdict() == []


@pytest.mark.parametrize(
    ("tool", "codes", "environ"),
    [
        ("affect", {0}, PATIENT_EXIT),
        pytest.param("swallow", {0, EXIT_UNCLEAN}, {}, marks=pytest.mark.long),
    ],
)
def test_g10_a_second_sigterm_hurries_a_runner(
    scaled: MakeSite, tool: str, codes: set[int], environ: dict[str, str]
):
    site = scaled(TURNS_DRAIN_GRACE=60.0)
    site.serve_uvicorn(role="web")
    runner = site.run_turns(environ=environ)
    client = site.client()
    turn_id = client.say(client.converse(), f'call {tool} {{"key": "a", "seconds": 60}}')
    client.until_running(turn_id, tool)
    runner.terminate()
    eventually_sync(lambda: "Waiting up to" in runner.own_words)
    runner.terminate()
    code, passed = seconds_to_exit(runner)
    assert code in codes, runner.own_words
    assert passed < HURRY_BOUND + WRITE_BOUND + BUSY_EXIT
    turn = client.until_ended(turn_id)
    assert (turn["status"], turn["ended_by"]["reason"]) == ("interrupted", "shutdown")
    assert site.verdict() == []


@pytest.mark.parametrize(
    ("tool", "codes"),
    [("swallow", {0, EXIT_UNCLEAN}), pytest.param("block", {EXIT_UNCLEAN}, marks=pytest.mark.long)],
)
def test_g10_a_runner_leaves_in_time_whatever_hangs_in_it(
    scaled: MakeSite, tool: str, codes: set[int]
):
    site = scaled(TURNS_DRAIN_GRACE=GRACE)
    site.serve_uvicorn(role="web")
    runner = site.run_turns()
    client = site.client()
    turn_id = client.say(client.converse(), f'call {tool} {{"key": "a", "seconds": 60}}')
    eventually_sync(lambda: site.effects(), timeout=PATIENCE)
    runner.terminate()
    code, _passed = seconds_to_exit(runner)
    assert code in codes
    turn = client.until_ended(turn_id)
    assert (turn["status"], turn["ended_by"]["reason"]) == ("interrupted", "shutdown")
    assert site.verdict() == []
