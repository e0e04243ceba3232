"""The page of a turn says why it ended, where and when, and messages to the agent."""

import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from governance import Cancellation, CancelReason
from governance.db_clock import database_now
from governance.models import Activity
from tests.staff import make_staff, sign_in
from tests.turns.row_factory import RowFactory, make_process
from turns.core.turns import TurnEnding, TurnStatus, ending_of
from turns.endings import recovery
from turns.endings.turn_endings import end_turn
from turns.models import CancelRequest, Process, Repair, Turn
from turns.storage import retention

pytestmark = pytest.mark.django_db(transaction=True)


def page(client, row) -> str:
    address = reverse(f"admin:turns_{row._meta.model_name}_change", args=[row.pk])
    return client.get(address).content.decode().replace("\u00a0", " ")


def field(client, turn, name: str) -> str:
    """Return what a field of the turn's page says, as HTML."""
    found = re.search(rf'field-{name}">(.*?)</div>\s*</div>', page(client, turn), re.DOTALL)
    assert found, name
    return found[1]


def why(client, turn) -> str:
    return " ".join(strip_tags(field(client, turn, "why")).split())


def clock(at) -> str:
    local = timezone.localtime(at)
    return f"{local.time().isoformat('milliseconds')} {local:%Z}"


def running(owner, process) -> Turn:
    return RowFactory(owner).turn("running", owner=process)


def test_who_may_see_contents_reads_what_the_provider_said(admin_client, ada):
    said = '{"status": 400, "body": "Unknown parameter\u202e"}'
    turn = RowFactory(ada).turn("failed", error_code="chat_model_rejected", error_detail=said)

    shown = strip_tags(field(admin_client, turn, "provider_said"))
    assert "Unknown parameter\\u{202e}" in shown


@pytest.mark.parametrize("has_call", [False, True])
def test_a_turn_whose_process_died_says_which_and_when_with_and_without_an_open_call(
    admin_client, ada, has_call
):
    process = make_process(name="runner-1", age=600)
    turn = running(ada, process)
    if has_call:
        RowFactory(conversation=turn.conversation).call(turn, "c1", "running")
    recovery.end_orphaned()
    for row in (turn, process):
        row.refresh_from_db()
    assert Repair.objects.filter(turn=turn).exists() is has_call
    words = "its process stopped responding: process runner-1, last heartbeat at"
    said = why(admin_client, turn)
    assert words in said
    seen, found = said.split(words)[1].split(", found dead at")
    assert clock(process.seen_at) in seen
    assert clock(turn.ended_at) in found
    assert reverse("admin:turns_process_change", args=[process.pk]) in field(
        admin_client, turn, "why"
    )


def test_a_turn_that_its_process_stopped_for_its_shutdown_says_which_and_when(admin_client, ada):
    process = make_process(name="runner-2")
    turn = running(ada, process)
    end_turn(turn.pk, ending_of(Cancellation(reason=CancelReason.SHUTDOWN)))
    turn.refresh_from_db()
    said = why(admin_client, turn)
    assert "process runner-2, at" in said
    assert clock(turn.ended_at) in said
    assert said.count("a server shutdown") == 1  # the actor and the cause are the same here


def test_a_turn_that_a_living_process_lost_does_not_claim_its_death(admin_client, ada):
    process = make_process(name="runner-3")
    turn = running(ada, process)
    recovery.end_lost(process, [])
    turn.refresh_from_db()
    for _ended in (False, True):
        said = why(admin_client, turn)
        assert "process runner-3 is alive but no longer ran the turn" in said
        assert "gone" not in said
        Process.objects.update(ended_at=database_now() + timedelta(seconds=1))


def test_an_interrupted_turn_without_a_known_process_says_when(admin_client, ada):
    turn = running(ada, None)
    end_turn(turn.pk, TurnEnding(status=TurnStatus.INTERRUPTED))
    turn.refresh_from_db()
    said = why(admin_client, turn)
    assert "its process was gone: detected at" in said
    assert clock(turn.ended_at) in said


@pytest.fixture
def stopped(ada):
    """A cancelled turn with a call that was stopped, one that was given up, and one that had ended."""
    factory = RowFactory(ada)
    turn = factory.turn("cancelled", ended_by_reason="user", ended_by_source="button")
    factory.call(turn, "c0", "succeeded", disposition="settled", result="all <well>")
    factory.call(
        turn, "c1", "cancelled", ended_by_reason="user", disposition="settled",
        result="[CANCELLED] <stopped>",
    )  # fmt: skip
    factory.call(
        turn, "c2", "abandoned", disposition="indeterminate", result="[ABANDONED] " + "x" * 5_000
    )
    return CancelRequest.objects.create(
        turn=turn, reason="user", source="button", by=ada, by_name="ada", note="wrong customer",
        requested_at=timezone.now(), settled_at=timezone.now(), outcome="cancelled",
    )  # fmt: skip


def test_the_page_says_what_the_agent_was_told_of_each_stopped_call_and_what_the_next_turn_reads(
    admin_client, stopped
):
    told = field(admin_client, stopped.turn, "told")
    assert "[CANCELLED] &lt;stopped&gt;" in told
    assert "[ABANDONED] xxx" in told
    assert "x" * 3_000 not in told  # the page of the call has all of it
    assert "all &lt;well&gt;" not in told
    assert "May have run in part or whole, check before repeating: quick (c2)." in told


def test_a_turn_that_came_to_its_end_tells_of_nothing(admin_client, ada):
    factory = RowFactory(ada)
    turn = factory.turn()
    factory.call(turn, "c1", result="a fine result")
    assert "field-told" not in page(admin_client, turn)


def test_what_the_agent_was_told_is_content(stopped, eve):
    html = page(sign_in(make_staff(eve, "view_turn")), stopped.turn)
    assert "[CANCELLED]" not in html
    assert "field-told" not in html


def test_the_page_of_a_cancelled_turn_and_the_page_of_its_turn_lead_to_each_other(
    admin_client, stopped, eve
):
    there = reverse("admin:turns_cancelledturn_change", args=[stopped.pk])
    back = reverse("admin:turns_turn_change", args=[stopped.turn_id])
    assert f'href="{there}"' in field(admin_client, stopped.turn, "why")
    assert f'href="{back}"' in page(admin_client, stopped.turn.cancel_requests.get())
    cancelled = admin_client.get(there).content.decode()
    assert f'href="{back}"' in cancelled
    sees_turns = sign_in(make_staff(eve, "view_turn"))
    assert there not in page(sees_turns, stopped.turn)
    assert "wrong customer" not in why(sees_turns, stopped.turn)  # a user typed it: content
    sees_requests = sign_in(make_staff(eve, "view_cancelrequest"))
    assert back not in sees_requests.get(there).content.decode()


def test_the_page_tells_what_was_told_from_what_would_be_told_and_from_what_was_pruned(
    admin_client, stopped
):
    turn = stopped.turn
    told = field(admin_client, turn, "told")
    assert "the next turn (preview)" in told
    assert "[INTERRUPTED]" in told
    RowFactory(conversation=turn.conversation).turn()
    told = field(admin_client, turn, "told")
    assert "(preview)" not in told
    assert "[INTERRUPTED]" in told
    Turn.objects.update(ended_at=timezone.now() - timedelta(days=30))
    retention.prune(timedelta(days=20))
    turn.refresh_from_db()
    told = field(admin_client, turn, "told")
    assert "[INTERRUPTED]" not in told
    assert clock(turn.pruned_at)[:5] in told
    assert "calls deleted by prune" in field(admin_client, turn, "calls")
    act = Activity.objects.get(action="prune")
    assert (act.kind, act.by_name, act.changes["turns"]) == ("deletion", "", 2)


def test_the_page_shows_the_note_that_the_next_turn_was_given(admin_client, stopped):
    factory = RowFactory(conversation=stopped.turn.conversation)
    factory.message(factory.turn(), "user", note="[INTERRUPTED] as it was written then")
    Turn.objects.filter(pk=stopped.turn_id).update(pruned_at=timezone.now())
    assert "as it was written then" in field(admin_client, stopped.turn, "told")
