"""Servers at an address: one of others in the older protocol, one of the SDK in the newest (G2)."""

import asyncio
import socket

import httpx2
import pytest

from governance import Cancellation, CancelReason, CancelSource
from governance.core.calls import CallStatus, Disposition, ErrorType
from governance.mcp import http
from governance.mcp.response import ResponseStream
from governance.mcp.specs import McpTiming
from governance.mcp.tools import McpTools
from tests.governance.mcp.support import QUICK, Person, address
from tests.support import PATIENCE, eventually, with_room

BY_USER = Cancellation(reason=CancelReason.USER, source=CancelSource.BUTTON, by="ada")
LONG = "all_trigger-long-running-operation"


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setenv("COUNTING_TOKEN_OF_OURS", "Bearer open sesame")


@pytest.fixture
def transports(monkeypatch):
    """The transports that are opened, to look at what they hold."""
    opened = []

    class Seen(http.CheckedTransport):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            opened.append(self)

    monkeypatch.setattr(http, "CheckedTransport", Seen)
    return opened


def counter(server, **values):
    headers = (("Authorization", "COUNTING_TOKEN_OF_OURS"),)
    return address("counter", server.url, headers=headers, **values)


async def test_progress_over_http_is_progress_of_its_call(harness, everything_url):
    await harness.begin(address("all", everything_url))
    live, outcome = harness.call(LONG, duration=0.6, steps=3)
    settled = await outcome
    assert settled.status is CallStatus.SUCCEEDED
    assert "completed" in settled.result
    assert live.last_progress.total == 3.0


async def test_an_older_server_is_told_and_its_open_answer_is_given_up(
    harness, everything_url, transports
):
    connection = await harness.begin(address("all", everything_url))
    for _ in range(3):
        live, outcome = await harness.begun(LONG, duration=60, steps=600)
        assert transports[0].open_calls == 1
        live.cancel(BY_USER)
        cancelled = await outcome
        assert cancelled.status is CallStatus.ABANDONED  # nothing proves that it has stopped
        await eventually(lambda: transports[0].open_calls == 0)
    assert "echo" in (await harness.run("all_echo", message="echo")).result
    assert connection.starts == 1


async def test_the_newest_protocol_counts_and_reports(harness, counting, token):
    await harness.begin(counter(counting))
    live, outcome = harness.call("counter_count", to=3)
    settled = await outcome
    assert settled.result.startswith("counted to 3")
    assert live.last_progress.message == "number 3"


async def both_ask(harness, name, **arguments):
    """Start two calls that ask at the same time; return the person, the calls and their outcomes."""
    person = Person()
    calls = [harness.call(name, approver=person, **arguments, who=who) for who in ("Ada", "Eve")]
    await eventually(lambda: len(person.asked) == len(calls))
    return person, [live for live, _outcome in calls], [outcome for _live, outcome in calls]


async def test_each_answer_reaches_the_call_that_asks_for_it(harness, counting, token):
    await harness.begin(counter(counting, asks_people=True))
    person, (ada, eve), outcomes = await both_ask(harness, "counter_inquire")
    assert ada.question.form["message"] == "Which color, Ada?"
    assert eve.question.form["message"] == "Which color, Eve?"
    person.answer(eve, color="green")
    person.answer(ada, color="red")
    assert [(await outcome).result.split("\n")[0] for outcome in outcomes] == [
        "Ada: red",
        "Eve: green",
    ]


async def test_each_answer_reaches_its_call_in_the_older_protocol(harness, everything_url):
    await harness.begin(address("all", everything_url, asks_people=True))
    person, (ada, eve), outcomes = await both_ask(harness, "all_trigger-elicitation-request")
    person.answer(eve, name="Eve Blue")
    person.answer(ada, name="Ada Red")
    first, second = [(await outcome).result for outcome in outcomes]
    assert ("Ada Red" in first, "Eve Blue" in first) == (True, False)
    assert ("Ada Red" in second, "Eve Blue" in second) == (False, True)


async def test_a_cancelled_call_is_stopped_at_the_server(harness, counting, token):
    await harness.begin(counter(counting))
    before = (await harness.run("counter_stops")).result
    live, outcome = await harness.begun("counter_endless")
    live.cancel(BY_USER)
    cancelled = await outcome
    assert cancelled.error_type is ErrorType.CANCELLED
    assert cancelled.disposition is Disposition.INDETERMINATE

    async def stopped():
        return (await harness.run("counter_stops")).result != before

    await eventually(stopped)


async def test_a_changed_list_over_http_changes_the_registry(harness, counting, token):
    await harness.begin(counter(counting))

    async def grown():
        await harness.run("counter_grow")
        return "counter_grown" in harness.names()

    await eventually(grown)
    assert (await harness.run("counter_grown")).result.startswith("grown")


async def test_a_server_that_goes_away_fails_its_calls_at_once_and_is_found_again(
    harness, stoppable_server, token
):
    connection = await harness.begin(counter(stoppable_server))
    _, outcome = await harness.begun("counter_endless")
    await asyncio.to_thread(stoppable_server.stop)
    lost = await outcome
    assert lost.status is CallStatus.FAILED
    assert lost.duration < with_room(5)
    await asyncio.to_thread(stoppable_server.start)
    await eventually(lambda: connection.connect_soon() or connection.is_connected)
    assert (await harness.run("counter_count", to=1)).result.startswith("counted to 1")


async def test_a_wrong_token_is_named_by_its_status(harness, counting, monkeypatch):
    monkeypatch.setenv("COUNTING_TOKEN_OF_OURS", "Bearer wrong")
    await harness.begin(counter(counting))
    assert harness.health.failures == ["it answered 401 (check its headers)"]


async def test_a_header_whose_variable_is_not_set_is_named(harness, counting):
    await harness.begin(counter(counting))
    reason = "the environment variable COUNTING_TOKEN_OF_OURS is not set on this server"
    assert harness.health.failures == [reason]


async def test_nobody_at_the_address(harness):
    await harness.begin(address("nobody", "http://127.0.0.1:9/mcp"))
    assert harness.health.failures == ["it cannot be reached"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/mcp", "http://[::1]:9/mcp", "http://2130706433:9/mcp"]
)
async def test_a_private_address_is_refused_unless_it_is_allowed(harness, url):
    strict = McpTools(registry=harness.registry, health=harness.health, timing=QUICK)
    strict.apply([address("inside", url, id=1), address("let", url, id=2, allow_private=True)])
    await strict.ready()
    await strict.aclose()
    refused, tried = sorted(harness.health.failures, key=lambda reason: "private" not in reason)
    assert "private or local network" in refused
    assert tried == "it cannot be reached"


async def test_a_name_is_looked_up_as_it_is_written_to_the_server(harness, monkeypatch):
    """Python's own way to write ß in a name is an older one: it leads to another host."""
    asked = []

    def find(host, *_args, **_named):
        asked.append(host)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", find)
    await harness.begin(address("street", "http://straße.test/mcp"))
    assert harness.health.failures == ["its host was not found"]
    assert set(asked) == {"xn--strae-oqa.test"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [(200, "application/json"), (307, "text/event-stream"), (500, "text/event-stream")],
)
async def test_an_endless_document_is_cut_off(status, kind):
    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self):
            while True:
                yield b"x" * 1000

    response = httpx2.Response(status, headers={"content-type": kind}, stream=Endless())
    timing = McpTiming(longest_message=10_000)
    answer = ResponseStream(response, timing=timing, request_id=1, on_close=lambda: None)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(httpx2.ReadError):
            async for _ in answer:
                pass
