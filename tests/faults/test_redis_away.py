"""Redis hangs or is gone: cancels are answered and seen in time, text goes on, and the log has one line for it (G2)."""

import signal
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scripts.servers import Redis
from tests.faults.client import Client, WebSocketClient
from tests.faults.cluster import let_pass
from tests.faults.conftest import MakeSite
from tests.faults.site import Site
from tests.processes import Process
from tests.support import PATIENCE, eventually_sync, with_room

ANSWERED = with_room(0.5)  # seconds; one that waits for Redis takes a second and more
SEEN = with_room(1.0)  # seconds from the stored ending to the page
AWAY = "The channel layer does not answer"
BACK = "The channel layer answers again"

pytestmark = pytest.mark.timeout(600)


def cancel(client: Client, page: WebSocketClient, conversation: str) -> tuple[float, float]:
    """Cancel a call that runs. Return how long the answer took, and how long the page knew of the ending after that."""
    turn_id = client.say(conversation, 'call affect {"key": "a", "seconds": 60}')
    client.until_running(turn_id, "affect", within=PATIENCE)
    asked_at = time.monotonic()
    assert client.cancel(turn_id).is_success
    answered_at = time.monotonic()
    assert client.until_ended(turn_id)["status"] == "cancelled"
    ended_at = time.monotonic()
    seen = page.until("turn_end", turn_id=turn_id)
    return answered_at - asked_at, seen["_received"] - ended_at


def layer_up(site: Site, name: str) -> float:
    """Return what Prometheus is told of Redis."""
    told = site.client(name, user="root").get("/metrics?scope=process").text
    [families] = [
        family
        for family in text_string_to_metric_families(told)
        if family.name == "turnkeeper_channel_layer_up"
    ]
    return families.samples[0].value


def until_said(process: Process, words: str) -> None:
    eventually_sync(lambda: words in process.own_words, timeout=PATIENCE)


@pytest.mark.parametrize("fault", ["gone", "frozen"])
def test_g02_without_redis_pages_of_other_processes_see_endings_and_text_in_time(
    scaled: MakeSite, redis: Redis, fault: str
):
    site = scaled(TURNS_POLL_INTERVAL=0.3)
    processes = [
        site.run_turns("runner"),
        site.serve("web", role="web"),
        site.serve("other", role="web"),
    ]
    client = site.client()
    conversation = client.converse()
    page = site.watch(conversation, "other")
    cancel(client, page, conversation)  # everything is connected
    if fault == "gone":
        redis.crash()
    else:
        redis.signal(signal.SIGSTOP)
    try:
        for process in processes:
            until_said(process, AWAY)
        times = [cancel(client, page, conversation) for _ in range(4)]
        assert max(answered for answered, _ in times) < ANSWERED, times
        assert max(seen for _, seen in times) < SEEN, times
        turn_id = client.say(conversation, "slowly " + "word " * 60)
        client.until_ended(turn_id, within=PATIENCE)
        page.until("turn_end", turn_id=turn_id)
        pieces = [frame for frame in page.frames if frame["type"] == "text_delta"]
        pieces = [piece for piece in pieces if piece["turn_id"] == turn_id]
        assert len(pieces) > 1
        ends = [0, *(piece["offset"] + len(piece["text"]) for piece in pieces)]
        assert [piece["offset"] for piece in pieces] == ends[:-1]
        assert "word word" in "".join(piece["text"] for piece in pieces)
        assert layer_up(site, "other") == 0
        let_pass(3.0)  # in which a line a second would show
    finally:
        redis.start() if fault == "gone" else redis.signal(signal.SIGCONT)
    for process in processes:
        until_said(process, BACK)
        assert process.own_words.count(AWAY) == process.own_words.count(BACK) == 1
        assert process.own_words.count("Traceback") <= 3, process.own_words
    assert layer_up(site, "other") == 1
    assert site.verdict() == []
