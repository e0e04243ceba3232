"""A result is text of bounded length, whatever a tool returns or floods."""

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.core import outcomes
from governance.core.calls import CallStatus, Disposition, ToolCall
from governance.core.cancellation import CancellationToken
from governance.core.invokers.worker_errors import RemoteToolError, WorkerDied, WorkerNotStarted
from governance.core.live_call import LiveCall
from governance.core.results import as_text

ENOUGH = 100_000


@dataclass
class Point:
    x: int


class Model(pydantic.BaseModel):
    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "Done."),
        ("as it is", "as it is"),
        ("", ""),
        ("\x1b[32m10%\r50%\r\x1b[0m100%\nok", "100%\nok"),
        (3, "3"),
        (True, "true"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        (Point(x=1), '{"x":1}'),
        (Model(x=1), '{"x":1}'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        ({1}, "[1]"),
        (range(2), "[0,1]"),
    ],
)
def test_a_value_becomes_the_text_that_the_model_reads(value, text):
    assert as_text(value, limit=ENOUGH) == text


class Unspeakable:
    def __str__(self):
        raise RuntimeError("secret")


@pytest.mark.parametrize("value", [b"\xff", Unspeakable(), "\udc80".join("ab").split()])
def test_what_cannot_be_written_is_a_value_error(value):
    with pytest.raises(ValueError):  # noqa: PT011 - of whatever kind
        as_text(value, limit=ENOUGH)


def test_a_circle_is_a_value_error():
    circle = []
    circle.append(circle)

    with pytest.raises(ValueError, match="Circular"):
        as_text(circle, limit=ENOUGH)


def test_a_long_text_keeps_its_beginning_and_its_end():
    text = as_text("<" + "x" * 5000 + ">", limit=1000)

    assert text.startswith("<xxx")
    assert text.endswith("xxx>")
    assert "4 002 characters left out" in text


# What a terminal would not show is no part of the text.
PRINTED = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x1b\r"), max_size=300
)


@given(text=PRINTED, limit=st.integers(1, 200))
def test_a_text_is_cut_only_if_it_is_too_long(text, limit):
    cut = as_text(text, limit=limit)

    if len(text) <= limit:
        assert cut == text
    else:
        assert f"… {len(text) - limit} characters left out …" in cut
        assert len(cut) <= limit + 50


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=8))
def test_json_is_written_as_it_would_be_read(value):
    text = as_text(value, limit=ENOUGH)

    if value is not None and not isinstance(value, str):
        assert json.loads(text) == value


def live_call():
    return LiveCall(ToolCall(id="c1", tool_name="t"), token=CancellationToken())


def failed_body(error):
    body = asyncio.get_running_loop().create_future()
    body.set_exception(error)
    return body


async def test_a_place_that_refuses_the_body_means_not_started():
    outcome = outcomes.settled(
        live_call(),
        failed_body(WorkerNotStarted("The server is shutting down.")),
        result_limit=1_000,
        mask=str,
    )
    assert outcome.status is CallStatus.FAILED
    assert outcome.disposition is Disposition.NOT_STARTED


async def test_a_worker_that_died_leaves_the_outcome_unknown():
    died = WorkerDied("was killed by signal 9")
    outcome = outcomes.settled(live_call(), failed_body(died), result_limit=1_000, mask=str)
    assert outcome.disposition is Disposition.INDETERMINATE
    assert "may have been applied" in outcome.result


async def test_what_a_tool_raised_in_its_process_is_named_but_not_quoted():
    raised = RemoteToolError("KeyError", "the secret", traceback="Traceback … the secret")
    outcome = outcomes.settled(live_call(), failed_body(raised), result_limit=1_000, mask=str)
    assert "KeyError" in outcome.result
    assert "the secret" not in outcome.result + outcome.detail
