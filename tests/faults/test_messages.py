"""Messages between processes get lost, doubled, late and out of order; sockets are cut: nobody misses anything (G2, G9)."""

import pytest

from scripts.servers import Redis
from tests.faults import measures
from tests.faults.bounds import BUSY, CANCEL_BY_POLL
from tests.faults.checker import view_violations
from tests.faults.client import Client, WebSocketClient
from tests.faults.cluster import let_pass, start_scaled
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.support import PATIENCE, eventually_sync

LAYERS = {
    "all lost": {"drop": 1.0},
    "half lost": {"drop": 0.5, "seed": 1},
    "doubled and late": {"duplicate": 0.3, "late": 0.5, "delay": 0.3, "seed": 2},
}
TALK = 'slowly one two three four five\ncall affect {"key": "a", "seconds": 0.3}\ncall affect {"key": "b"}'

pytestmark = pytest.mark.timeout(600)


def assert_all_was_seen(site: Site, watcher: WebSocketClient, conversation: str) -> None:
    """What a tab has seen, from its first moment on, is what is stored: in order, none twice, none missing."""
    [row] = [row for row in site.record().conversations if str(row["id"]) == conversation]
    eventually_sync(lambda: watcher.last_seq == row["last_seq"], timeout=PATIENCE)
    events = watcher.events()
    assert [event["seq"] for event in events] == [*range(1, row["last_seq"] + 1)]
    assert view_violations(events, site.record()) == []


def talk(client: Client, conversation: str, *, times: int = 2) -> None:
    for _ in range(times):
        turn_id = client.say(conversation, TALK)
        assert client.until_ended(turn_id, within=PATIENCE)["status"] == "completed"


@pytest.mark.parametrize(
    "fault",
    [
        "half lost",
        pytest.param("all lost", marks=pytest.mark.long),
        pytest.param("doubled and late", marks=pytest.mark.long),
    ],
)
def test_g02_g09_with_a_layer_that_fails_all_is_seen_and_a_cancel_takes_a_poll(
    scaled: MakeSite, fault: str
):
    site = scaled(TURNS_POLL_INTERVAL=1.0, WEBCHAT_HEARTBEAT_INTERVAL=1.0)
    start_scaled(site, runners=1, layer=LAYERS[fault])
    client = site.client()
    conversation = client.converse()
    watcher = site.watch(conversation)
    talk(client, conversation)
    for _ in range(3):
        held = client.say(conversation, 'call affect {"key": "held", "seconds": 60}')
        client.until_running(held, "affect")
        assert client.cancel(held).is_success
        assert client.until_ended(held)["status"] == "cancelled"
        measures.note("G2", f"cancel, layer: {fault}", site.record().cancel_seconds(held))
    assert_all_was_seen(site, watcher, conversation)
    assert site.verdict(cancel_within=CANCEL_BY_POLL + BUSY) == []


def test_g09_a_socket_that_is_cut_every_moment_misses_nothing(embedded: MakeSite):
    site = embedded()
    site.serve()
    client = site.client()
    conversation = client.converse()
    watcher = site.watch(conversation)
    turns = [client.say(conversation, TALK) for _ in range(4)]
    while not site.record().turn(turns[-1])["ended_at"]:
        watcher.is_connected.wait(5)
        let_pass(0.05)
        watcher.cut()
    assert watcher.welcomes > 3
    assert_all_was_seen(site, watcher, conversation)


def test_g09_a_redis_that_comes_back_costs_no_event(scaled: MakeSite, redis: Redis):
    site = scaled(WEBCHAT_HEARTBEAT_INTERVAL=1.0)
    start_scaled(site, runners=1)
    client = site.client()
    conversation = client.converse()
    watcher = site.watch(conversation)
    turns = [client.say(conversation, TALK) for _ in range(3)]
    watcher.until("tool_start", turn_id=turns[0])
    redis.crash()
    let_pass(0.5)
    redis.start()
    for turn_id in turns:
        assert client.until_ended(turn_id, within=PATIENCE)["status"] == "completed"
    assert_all_was_seen(site, watcher, conversation)
    assert watcher.close_codes == []
    assert site.verdict() == []
