"""The admin of turns: found by what happened, whole, read-only, and one action that cancels (V4, 92)."""

import asyncio
import re
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from console import turns as turns_admin
from tests.staff import sign_in
from tests.support import PATIENCE
from tests.turns.row_factory import RowFactory, make_repair, said, use
from tests.turns.support import PROMISED_MS, ChatDriver, in_database, row
from turns.models import Acknowledgement, CancelRequest, Event, Repair, Turn
from turns.testing import call

pytestmark = pytest.mark.django_db(transaction=True)

LISTS = ["turn", "conversation", "cancelrequest", "repair"]


def list_url(name: str) -> str:
    return reverse(f"admin:turns_{name}_changelist")


def page_url(row) -> str:
    return reverse(f"admin:turns_{row._meta.model_name}_change", args=[row.pk])


@pytest.fixture
def past(ada):
    """One turn of each end, with all that belongs to the cancelled one."""
    factory = RowFactory(ada)
    turns = {
        status: factory.turn(status)
        for status in ("completed", "failed", "timed_out", "interrupted", "running", "queued")
    }
    turns["cancelled"] = turn = factory.turn(
        "cancelled",
        ended_by_reason="user",
        ended_by_source="button",
        ended_by_name="ada",
        user_message="<b>bold</b>",
        duration_ms=65_000,
        turn_timeout_ms=1_800_000,
        usage={"input_tokens": 51_012, "cache_read_tokens": 50_000, "requests": 2},
    )
    factory.message(turn, "assistant", said("hm"), use("c1"))
    factory.call(
        turn,
        "c1",
        "abandoned",
        error_type="cancelled",
        disposition="indeterminate",
        timeout_ms=120_000,
        timeout_source="built_in",
        ended_by_reason="user",
    )
    at = timezone.now()
    CancelRequest.objects.create(
        turn=turn,
        reason="user",
        source="button",
        by=ada,
        by_name="ada",
        note="too slow",
        requested_at=at,
        settled_at=at + timedelta(milliseconds=640),
        settled_ms=640,
        outcome="cancelled",
        running_tools=["quick"],
    )
    Acknowledgement.objects.create(
        request=CancelRequest.objects.get(source="button"),
        turn=turn,
        said="stop",
        source="typed",
        text="Cancelled.",
        at=at,
    )
    CancelRequest.objects.create(
        turn=turns["running"], reason="admin", source="api", requested_at=at
    )
    make_repair(turns["interrupted"], tool_id="c9", text="[INTERRUPTED] …", at=at)
    Event.objects.create(
        conversation=factory.conversation,
        turn=turn,
        seq=1,
        type="turn_end",
        payload={"status": "cancelled", "note": "<script>"},
        at=at,
    )
    return turns


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, {"completed", "failed", "timed_out", "interrupted", "running", "queued", "cancelled"}),
        ({"happened": "active"}, {"running", "queued"}),
        ({"happened": "stopped"}, {"cancelled", "timed_out", "interrupted"}),
        ({"happened": "failed"}, {"failed"}),
        ({"happened": "repaired"}, {"interrupted"}),
        ({"status__exact": "completed"}, {"completed"}),
        ({"ended_by_reason__exact": "user"}, {"cancelled"}),
        ({"ended_by_source": "button"}, {"cancelled"}),
        ({"queued_at__year": "1999"}, set()),
        ({"q": "nobody"}, set()),
    ],
)
def test_turns_are_found_by_what_happened(admin_client, past, query, expected):
    page = admin_client.get(list_url("turn"), query)
    assert page.status_code == 200
    found = [turn.status for turn in page.context["cl"].result_list]
    assert sorted(found) == sorted(expected)


def test_turns_are_found_by_a_whole_id_or_name(admin_client, past, ada):
    turn = past["failed"]
    ids = [(turn.pk, 1), (turn.pk.hex, 1), (turn.conversation_id, 7)]
    for text, count in (*ids, ("ada", 7), ("ad", 0)):
        page = admin_client.get(list_url("turn"), {"q": str(text)})
        assert len(page.context["cl"].result_list) == count


@pytest.mark.parametrize(
    ("name", "query", "count"),
    [
        ("cancelrequest", {}, 2),
        ("cancelrequest", {"settled": "no"}, 1),
        ("cancelrequest", {"settled": "fast"}, 1),
        ("cancelrequest", {"settled": "slow"}, 0),
        ("cancelrequest", {"source": "button"}, 1),
        ("cancelrequest", {"q": "ada"}, 1),
        ("repair", {}, 1),
        ("repair", {"cause": "crash"}, 1),
        ("repair", {"kind": "missing_result", "found_when": "history_read"}, 0),
        ("repair", {"q": "c9"}, 1),
        ("repair", {"q": "11111111-1111-1111-1111-111111111111"}, 0),
        ("conversation", {}, 1),
        ("conversation", {"q": "ada"}, 1),
    ],
)
def test_the_audit_is_found_too(admin_client, past, name, query, count):
    page = admin_client.get(list_url(name), query)
    assert page.status_code == 200
    assert len(page.context["cl"].result_list) == count


def test_the_page_of_a_turn_tells_the_whole_story(admin_client, past):
    page = admin_client.get(page_url(past["cancelled"]))
    assert page.status_code == 200
    text = page.content.decode().replace("\u00a0", " ")
    for told in (
        "ada, by button",  # who and how
        "1 min 5 s",
        "30 min",
        "&lt;b&gt;bold&lt;/b&gt;",
        "abandoned, may still be running",
        "indeterminate",
        "2 min (built in)",  # the limit in force
        "640 ms",  # requested → settled
        "requests: 2, tokens in: 51,012, of these read from the cache: 50,000",
        "&lt;script&gt;",
    ):
        assert told in text, told
    assert "<b>bold" not in text
    assert '{"status": "cancelled", "note": "<script>"}' not in text


def test_a_cancel_shows_its_note_and_its_answer_and_a_repair_what_the_model_read(
    admin_client, past
):
    request = CancelRequest.objects.get(source="button")
    for shown, words in (
        (request, ("too slow", "“stop” → “Cancelled.”")),
        (Repair.objects.get(), ("[INTERRUPTED]",)),
    ):
        text = admin_client.get(page_url(shown)).content.decode()
        assert all(word in text for word in words), shown


def count_queries(admin_client, url) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert admin_client.get(url).status_code == 200
    return len(queries)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_asks_the_same_number_of_queries_however_long_it_is(admin_client, past, ada, name):
    few = count_queries(admin_client, list_url(name))
    for number in range(15):
        owner = get_user_model().objects.create_user(f"user-{number}")
        factory = RowFactory(owner)
        turn = factory.turn()
        CancelRequest.objects.create(
            turn=turn, reason="user", source="api", requested_at=timezone.now()
        )
        make_repair(turn)
    assert count_queries(admin_client, list_url(name)) == few


def test_the_page_of_a_turn_asks_the_same_number_of_queries_however_much_it_did(admin_client, past):
    turn = past["cancelled"]
    admin_client.get(page_url(turn))  # content types are cached from now on
    few = count_queries(admin_client, page_url(turn))
    factory = RowFactory(turn.conversation.owner)
    factory.conversation = turn.conversation
    for number in range(20):
        factory.call(turn, f"more-{number}")
        CancelRequest.objects.create(
            turn=turn,
            tool_id=f"more-{number}",
            reason="user",
            source="api",
            requested_at=timezone.now(),
        )
    assert count_queries(admin_client, page_url(turn)) == few


async def _act(user, *turns: Turn, why: str = "too dear"):
    def act():
        admin_client = sign_in(user)
        chosen = [str(turn.pk) for turn in turns]
        page = admin_client.post(
            list_url("turn"),
            {"action": "cancel_turns", "why": why, "_selected_action": chosen},
            follow=True,
        )
        return page.status_code, [str(message) for message in page.context["messages"]]

    return await in_database(act)


async def test_the_action_cancels_what_runs_by_the_path_of_every_request(
    chat: ChatDriver, admin_user, settings
):
    settings.TURNS_POLL_INTERVAL = 0.05
    chat.use_script([call("c1", "held")])
    turn_id = await chat.say()
    await chat.running(turn_id, "c1")
    queued = await chat.say("second")
    turns = [await row(Turn, pk=pk) for pk in (turn_id, queued)]
    refused = ["Nothing was done. Enter a reason first."]
    assert (await _act(admin_user, *turns, why=" "))[1] == refused
    assert await in_database(CancelRequest.objects.count) == 0
    status, told = await asyncio.wait_for(_act(admin_user, *turns), PATIENCE)
    assert (status, told) == (200, ["2 turns are being cancelled."])
    turn = await chat.ended(turn_id)
    assert (turn.status, turn.ended_by_reason, turn.ended_by_source, turn.ended_by_name) == (
        "cancelled",
        "admin",
        "admin",
        "boss",
    )
    assert (await row(Turn, pk=queued)).status == "cancelled"
    request = await chat.request(turn_id)
    assert (request.by_id, request.note) == (admin_user.pk, "too dear")
    assert request.settled_ms <= PROMISED_MS
    assert (await _act(admin_user, turn))[1] == ["1 turn had already ended."]


def test_the_action_costs_the_same_however_many_ended_turns_are_chosen(past, admin_client):
    sent = {
        "action": "cancel_turns",
        "why": "too dear",
        "select_across": "1",
        "_selected_action": [str(past["completed"].pk)],
    }
    address = f"{list_url('turn')}?when=any&status__exact=completed"

    def act() -> tuple[int, list[str]]:
        with CaptureQueriesContext(connection) as queries:
            page = admin_client.post(address, sent, follow=True)
        return len(queries), [str(message) for message in page.context["messages"]]

    act()  # content types are cached from now on
    few, told = act()
    assert told == ["1 turn had already ended."]
    factory = RowFactory(conversation=past["completed"].conversation)
    for _number in range(20):
        factory.turn()
    assert act() == (few, ["21 turns had already ended."])


async def test_the_action_leaves_out_what_is_more_than_it_ends_at_once(
    chat: ChatDriver, admin_user, monkeypatch
):
    monkeypatch.setattr(turns_admin, "AT_ONCE", 1)
    queued = [await in_database(lambda: RowFactory(chat.user).turn("queued")) for _ in range(3)]
    assert (await _act(admin_user, *queued))[1] == [
        "1 turn is being cancelled.",
        "2 turns were skipped. Run the action again to cancel them.",
    ]
    assert await in_database(CancelRequest.objects.count) == 1


def test_a_refused_action_leaves_what_was_chosen(past, admin_client):
    """No reason, no action, no row: the rest stays, as it was sent."""
    chosen = [str(past["completed"].pk)]
    address = f"{list_url('turn')}?when=any"
    sent = {"action": "cancel_turns", "why": "", "_selected_action": chosen, "index": "0"}
    page = admin_client.post(address, sent)
    assert [str(message) for message in page.context["messages"]] == [
        "Nothing was done. Enter a reason first."
    ]
    assert _ticked(page) == chosen
    form = page.context["action_form"]
    assert form["action"].value() == "cancel_turns"
    assert 'autofocus aria-invalid="true"' in str(form["why"])
    page = admin_client.post(address, {**sent, "action": "", "why": "too dear"})
    assert _ticked(page) == chosen
    assert page.context["action_form"]["why"].value() == "too dear"
    page = admin_client.post(address, {**sent, "why": "too dear", "_selected_action": []})
    assert (_ticked(page), page.context["action_form"]["why"].value()) == ([], "too dear")
    assert page.context["action_form"]["action"].value() == "cancel_turns"
    page = admin_client.post(address, {**sent, "select_across": "1"})
    across = str(page.context["action_form"]["select_across"])
    assert "data-chosen" in across
    assert 'value="0"' in across
    assert _ticked(admin_client.get(address)) == []


def _ticked(page) -> list[str]:
    boxes = re.findall(r"<input checked[^>]*>", page.content.decode())
    return [re.search(r'value="([^"]+)"', box)[1] for box in boxes]


def test_the_pages_of_a_family_lead_to_each_other(admin_client, ada):
    above, below = RowFactory(ada), RowFactory(ada)
    turn = above.turn(agent="chief")
    child = below.turn(
        "timed_out", parent=turn, parent_tool_id="call_1_1", agent="<b>digger", is_detached=True
    )
    page = admin_client.get(page_url(turn)).content.decode()
    assert f'<a href="{page_url(child)}">&lt;b&gt;digger</a>' in page
    assert "timed out" in page
    assert "not yet" in page
    assert (
        f'<a href="{page_url(turn)}">chief · call_1_1</a>'
        in admin_client.get(page_url(child)).content.decode()
    )
