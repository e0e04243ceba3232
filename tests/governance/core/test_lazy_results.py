"""A lazy value is written where the body ran, within its limit; work that was never done is no success."""

import asyncio
import itertools
import threading
import time

import pytest

from governance import CallStatus, ErrorType, Isolation, make_tool
from governance.core.invokers.thread import ThreadInvoker
from tests.governance.core.support import ExecutorHarness

THREADS = {Isolation.THREAD: ThreadInvoker(max_threads=4, max_abandoned=4)}


async def run(function, **declared):
    tool = make_tool(function, name="probe", description="Probe.", **declared)
    harness = ExecutorHarness(tool, invokers=THREADS)
    return await harness.run(tool.name)


class Slow:
    """Has a text, which takes its time."""

    def __init__(self, places):
        self.places = places

    def __str__(self):
        self.places.append(threading.current_thread())
        return "slow"


def numbers():
    yield from range(3)


async def later_numbers():
    for number in range(3):
        yield number


def mapping():
    return map(str.upper, "ab")


async def coroutine_with_a_generator():
    return numbers()


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (numbers, "[0,1,2]"),
        (later_numbers, "[0,1,2]"),
        (mapping, '["A","B"]'),
        (coroutine_with_a_generator, "[0,1,2]"),
        (lambda: {"rows": (n for n in range(2))}, '{"rows":[0,1]}'),
    ],
    ids=["generator", "asynchronous generator", "map", "generator of a coroutine", "inside a dict"],
)
async def test_a_lazy_value_is_collected(function, text):
    outcome = await run(function)
    assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, text)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_text_is_never_made_on_the_event_loop_by_code_of_the_tool(is_async):
    places = []

    def plain():
        return Slow(places)

    async def coroutine():
        return Slow(places)

    outcome = await run(coroutine if is_async else plain)
    assert outcome.result == '"slow"'
    assert threading.current_thread() not in places


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_is_collected_obeys_the_limit_of_the_call(is_async):
    ends = threading.Event()

    def endless():
        try:
            for number in itertools.count():
                time.sleep(0.01)
                yield number
        finally:
            ends.set()

    def plain():
        return endless()

    async def coroutine():
        return endless()

    outcome = await run(coroutine if is_async else plain, timeout=0.1)
    assert outcome.error_type == ErrorType.TIMEOUT
    await asyncio.to_thread(ends.wait, 20)  # it stops soon afterwards
    assert ends.is_set()


async def test_an_endless_value_is_cut_at_the_limit_of_a_result():
    def endless():
        return ("x" * 1000 for _ in itertools.count())

    outcome = await run(endless)
    assert outcome.status is CallStatus.SUCCEEDED
    assert "characters left out" in outcome.result


async def inner():
    raise AssertionError("this never runs")


def forgotten():
    return inner()


async def forgotten_by_a_coroutine():
    return inner()


def forgotten_generator():
    return later_numbers()


@pytest.mark.parametrize("function", [forgotten, forgotten_by_a_coroutine, forgotten_generator])
async def test_work_that_nobody_awaited_fails_with_a_sentence(function):
    outcome = await run(function)
    assert outcome.status is CallStatus.FAILED
    assert "had not awaited" in outcome.result
    assert "0x" not in outcome.result


@pytest.mark.parametrize("value", [object(), lambda: None, {"a": [object()]}, iter])
async def test_the_name_of_an_object_is_no_result(value):
    def plain():
        return value if value is not iter else [object()]

    outcome = await run(plain)
    assert outcome.status is CallStatus.FAILED
    assert "cannot be written" in outcome.result
    assert "0x" not in outcome.result
