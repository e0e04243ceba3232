"""The page of what runs now: how much time is left, and an end of many that ends what it counted."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from console import running_results
from console.clocks import Pauses
from console.running_views import Rights, call_view
from console.timeline import facts_of
from governance.models import ToolCall
from tests.turns.row_factory import RowFactory, make_process, make_question
from turns.models import CancelRequest, RunningTurn, Turn

pytestmark = pytest.mark.django_db(transaction=True)

URL = reverse("admin:turns_runningturn_changelist")
NOBODY = Rights(reader=None, content=False, cancel=False, decide=False)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def boss(admin_client, monkeypatch):
    monkeypatch.setattr(running_results, "SETTLES_WITHIN", 0.0)
    return admin_client


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"timeout_ms": 90_000}, "30 s"),
        ({"timeout_ms": 60_999}, "0 s"),
        ({"timeout_ms": 61_000}, "1 s"),
        ({"timeout_ms": 5_000}, "0 s"),  # it is being ended, or somebody has shortened it
        ({"timeout_ms": 3_720_000}, "1 h 1 min"),
        ({"timeout_ms": 0}, "no limit"),
        ({"timeout_ms": None}, "—"),
        ({"timeout_ms": 90_000, "started_at": None}, "—"),
    ],
)
def test_the_time_left_of_a_call_is_its_limit_without_the_time_since_its_start(ada, fields, left):
    factory, at = RowFactory(ada), timezone.now()
    started = {"started_at": at - MINUTE, "requested_at": at - 5 * MINUTE}  # it stood in a queue
    row = factory.call(factory.turn("running"), "c1", "running", **{**started, **fields})
    shown = call_view(row, None, at=at, rights=NOBODY, pauses=Pauses())["left"]
    assert shown.replace("\u00a0", " ") == left


def left_of(client: Client, turn: Turn) -> list[str]:
    """Return what the page says is left of a turn, and then of its calls."""
    html = client.get(URL, {"q": str(turn.pk)}).content.decode().replace("\u00a0", " ")
    return [strip_tags(cell) for cell in re.findall(r'<td class="number"[^>]*>(.*?)</td>', html)]


def seconds(words: str) -> int:
    parts = re.findall(r"(\d+) (h|min|s)", words)
    return sum(int(number) * {"h": 3_600, "min": 60, "s": 1}[unit] for number, unit in parts)


def test_the_page_follows_a_limit_that_was_changed_while_the_call_runs(boss, ada):
    factory = RowFactory(ada)
    turn = factory.turn("running", started_at=timezone.now() - MINUTE, turn_timeout_ms=600_000)
    factory.call(turn, "c1", "running", started_at=turn.started_at, timeout_ms=300_000)
    assert 230 <= seconds(left_of(boss, turn)[1]) <= 240
    ToolCall.objects.update(timeout_ms=600_000)
    of_turn, of_call = map(seconds, left_of(boss, turn))
    assert 530 <= of_turn <= 540
    assert of_call in (of_turn, of_turn + 1)


def asked(turn: Turn, call_id: str, *, since: timedelta, until: timedelta | None, **more: Any):
    at = timezone.now()
    decided = {} if until is None else {"decided_at": at - until, "decision": "approved"}
    make_question(
        turn, call_id, tool_name="exec", rule="always", requested_at=at - since, **decided, **more
    )


def test_the_clock_of_a_turn_stood_still_while_people_were_asked(boss, ada):
    """Of ten minutes nine have passed, and of those people were asked in seven: two at once count once."""
    turn = RowFactory(ada).turn(
        "running", started_at=timezone.now() - 9 * MINUTE, turn_timeout_ms=600_000
    )
    asked(turn, "a", since=8 * MINUTE, until=4 * MINUTE)
    asked(turn, "b", since=6 * MINUTE, until=3 * MINUTE)
    asked(turn, "c", since=2 * MINUTE, until=0 * MINUTE)
    asked(turn, "c", since=9 * MINUTE, until=0 * MINUTE, is_late=True)  # changed nothing
    other = RowFactory(ada).turn("running", started_at=turn.started_at)
    asked(other, "d", since=9 * MINUTE, until=None)
    [left] = left_of(boss, turn)
    assert 470 <= seconds(left) <= 480


def set_to_work(above: Turn, *, tool_id: str = "ask", **fields: Any) -> Turn:
    """Plant a sub-agent that has worked as long as the turn above it."""
    return RowFactory(above.conversation.owner).turn(
        "running", started_at=above.started_at, parent=above, parent_tool_id=tool_id, **fields
    )


def turn_with_two_calls(user: AbstractUser, call_id: str, *, tool_name: str) -> Turn:
    """Plant a turn and two calls that began nine minutes ago and have ten; the second call is `other`."""
    factory, started_at = RowFactory(user), timezone.now() - 9 * MINUTE
    turn = factory.turn("running", started_at=started_at, turn_timeout_ms=600_000)
    limits = {"started_at": started_at, "timeout_ms": 600_000}
    factory.call(turn, call_id, "running", tool_name=tool_name, **limits)
    factory.call(turn, "other", "running", **limits)
    return turn


def test_it_stood_still_while_a_sub_agent_asked_that_was_waited_for(boss, ada):
    """Of ten minutes nine have passed, and of those a sub-agent of the sub-agent asked in seven."""
    turn = turn_with_two_calls(ada, "ask", tool_name="sessions_ask")
    child = set_to_work(turn)
    asked(set_to_work(child), "a", since=8 * MINUTE, until=MINUTE)
    asked(set_to_work(turn, tool_id="spawn", is_detached=True), "b", since=MINUTE, until=None)
    of_turn, of_call, of_other = map(seconds, left_of(boss, turn))
    assert 470 <= of_turn <= 480
    assert 470 <= of_call <= 480
    assert 50 <= of_other <= 60
    waited = turn.started_at + 17 * MINUTE
    limit = {fact.label: fact.limit for fact in facts_of(turn)}
    assert abs(limit["running"] - waited) < MINUTE / 60
    assert abs(limit["sessions_ask: running"] - waited) < MINUTE / 60
    asked(child, "c", since=MINUTE / 2, until=None)
    assert left_of(boss, turn)[:2] == ["paused", "paused"]


def test_a_call_that_waits_for_a_form_says_so_and_can_only_be_cancelled(boss, ada):
    """Of ten minutes nine have passed, and of those a first form took seven."""
    turn = turn_with_two_calls(ada, "asks", tool_name="inquire")
    form = {"message": "Who are you?", "fields": []}
    asked(turn, "asks", since=8 * MINUTE, until=MINUTE, form=form)
    of_turn, of_call, of_other = map(seconds, left_of(boss, turn))
    assert 470 <= of_turn <= 480
    assert 470 <= of_call <= 480
    assert 50 <= of_other <= 60
    asked(turn, "asks", since=MINUTE / 2, until=None, form=form)
    assert left_of(boss, turn)[:2] == ["paused", "paused"]
    html = boss.get(URL).content.decode()
    assert "waiting for a person to answer a form" in html
    assert "waiting for a person<" in html  # the turn
    assert f'name="cancel" value="{turn.pk}:asks"' in html
    assert "Allow" not in html
    assert "Deny this" not in html


def run(person, *, process=None, agent="digger") -> Turn:
    factory = RowFactory(person)
    turn = factory.turn("running", agent=agent, owner=process)
    factory.call(turn, "runs", "running", tool_name="dig", started_at=timezone.now())
    return turn


def asked_to_end() -> set[tuple[Any, str]]:
    return set(CancelRequest.objects.values_list("turn_id", "tool_id"))


@pytest.mark.parametrize("by", ["agent", "owner", "user", "agent and owner"])
@pytest.mark.parametrize("kind", ["turns", "calls"])
def test_all_of_an_agent_a_process_or_a_person_end_as_counted_and_nothing_else(
    boss, ada, eve, by, kind
):
    here, there = make_process(name="runner-1"), make_process(name="runner-2")
    turns = [
        run(person, process=process, agent=agent)
        for person in (ada, eve)
        for process in (here, there)
        for agent in ("digger", "writer")
    ]
    over = run(ada, process=here)
    Turn.objects.filter(pk=over.pk).update(status="completed", ended_at=timezone.now())
    ToolCall.objects.filter(group=str(over.pk)).update(status="succeeded")
    query = {"agent": "digger", "owner": str(here.pk), "user": "ada"}
    query = {name: value for name, value in query.items() if name in by}
    if kind == "calls":
        query["tool"] = "dig"
    fits = [
        turn
        for turn in turns
        if ("agent" not in by or turn.agent == "digger")
        and ("owner" not in by or turn.owner_id == here.pk)
        and ("user" not in by or turn.conversation.owner == ada)
    ]
    address = f"{URL}?{'&'.join(f'{name}={value}' for name, value in query.items())}"
    answer = boss.post(address, {"all": kind})
    assert answer.context["count"] == len(fits) == (2 if by == "agent and owner" else 4)
    assert asked_to_end() == set()
    late = run(ada, process=here)  # fits, and came after the count
    later = timezone.now() + MINUTE
    Turn.objects.filter(pk=late.pk).update(queued_at=later)
    ToolCall.objects.filter(group=str(late.pk)).update(requested_at=later)
    form = {"all": kind, "counted_at": answer.context["counted_at"], "why": "runaway"}
    assert boss.post(address, form).status_code == 302
    assert asked_to_end() == {(turn.pk, "" if kind == "turns" else "runs") for turn in fits}
    ending = RunningTurn.objects.filter(status="cancelling").count()
    assert ending == (len(fits) if kind == "turns" else 0)


def test_what_begins_there_after_the_count_goes_on(boss, ada):
    """A turn that stood in the queue, and one whose call of the tool began since, were counted nowhere."""
    here = make_process(name="runner-1")
    ran, queued, other = run(ada, process=here), RowFactory(ada).turn("queued"), run(ada)
    ToolCall.objects.filter(group=str(other.pk)).update(tool_name="carry")
    for query in ("owner=" + str(here.pk), "tool=dig"):
        answer = boss.post(f"{URL}?{query}", {"all": "turns"})
        assert answer.context["count"] == 1
        later = timezone.now() + MINUTE
        Turn.objects.filter(pk=queued.pk).update(owner=here, status="running", started_at=later)
        factory = RowFactory(conversation=other.conversation)
        factory.call(other, f"since-{query[:4]}", "running", tool_name="dig", requested_at=later)
        form = {"all": "turns", "counted_at": answer.context["counted_at"], "why": "runaway"}
        assert boss.post(f"{URL}?{query}", form).status_code == 302
        assert asked_to_end() == {(ran.pk, "")}, query
