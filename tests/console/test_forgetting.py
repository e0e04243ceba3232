"""A person is forgotten: what was written goes, what stays on record has another name, and the act is recorded."""

import io

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from governance import CancelSource, Verdict, activity, approval_store
from governance.approval_store import HumanDecision
from governance.models import Activity, Approval, Export, ToolCall
from tests.console.permission_table import APPS
from tests.console.planted import SECRET
from tests.staff import make_staff, sign_in
from tests.support import eventually
from tests.turns.row_factory import RowFactory, make_question
from tests.turns.support import ChatDriver, FakeTools, in_database
from turns import services
from turns.endings.forgetting import may_forget
from turns.exceptions import NotAllowed
from turns.models import CancelRequest, Conversation, Event, Message, Turn
from turns.testing import call, text
from webchat import api_tokens

pytestmark = pytest.mark.django_db(transaction=True)


def everything() -> str:
    """Every row of our own tables, and of the users."""
    models = [model for app in APPS for model in apps.get_app_config(app).get_models()]
    models.append(get_user_model())
    return str([list(model._default_manager.values()) for model in models])


@pytest.fixture
def zoe(db):
    """A user whose name is nowhere else."""
    return get_user_model().objects.create_user(
        "zoe-zander", "zoe@example.org", "pw", first_name="Zoe", last_name="Zander"
    )


@pytest.fixture
def written(zoe, ada, said_things):
    """What zoe has written, in her own conversation and elsewhere. Each text has the secret, and nothing runs."""
    Turn.objects.update(status="cancelled", ended_at=timezone.now(), ended_by_name="zoe-zander")
    ToolCall.objects.update(
        ended_by_name="zoe-zander", allowed_earlier_by="zoe-zander",
        deadline_changes=[{"at": "2026-01-01T00:00:00+00:00", "by": "zoe-zander", "source": "manual"}],
    )  # fmt: skip
    Conversation.objects.update(owner=zoe)
    CancelRequest.objects.update(by=zoe, by_name="zoe-zander", settled_at=timezone.now())
    Approval.objects.all().delete()
    elsewhere = RowFactory(ada).turn("cancelled")
    question = make_question(elsewhere, "q", tool_name="exec", rule="always")
    word = HumanDecision(verdict=Verdict.DENIED, by=zoe, reason=SECRET)
    assert approval_store.decide(question, word)
    activity.record(
        "cancel", "cancel", group=str(elsewhere.pk), note=SECRET, by_id=zoe.pk, by_name="zoe-zander"
    )
    CancelRequest.objects.create(
        turn=elsewhere, reason="user", source=CancelSource.BUTTON, by=zoe, by_name="zoe-zander",
        note=SECRET, requested_at=timezone.now(),
    )  # fmt: skip
    api_tokens.issue(user=zoe, name="nightly", by=zoe)
    name_in_events(elsewhere, "zoe-zander")
    Export.objects.create(
        source="turns.Turn", format="csv", filters={"user": ["zoe-zander"], "when": ["24h"]}
    )
    assert SECRET in everything()


def name_in_events(turn: Turn, name: str) -> None:
    """Store one event of each kind that can name a person, and one that names another."""
    ended_by = {"reason": "user", "source": "button", "by": name}
    payloads = [
        ("turn_abort", {"reason": "user", "source": "button", "by": name}),
        ("turn_ends_after_step", {"reason": "user", "source": "button", "by": name}),
        ("tool_decision", {"tool_id": "q", "decision": "denied", "by": name}),
        ("tool_deadline", {"tool_id": "q", "changed_by": name}),
        ("tool_start", {"tool_id": "q", "allowed_earlier_by": name}),
        ("tool_result", {"tool_id": "q", "ended_by": ended_by}),
        ("tool_result", {"tool_id": "r", "ended_by": None}),
        ("turn_abort", {"reason": "user", "source": "button", "by": "ada"}),
    ]
    Event.objects.bulk_create(
        Event(conversation_id=turn.conversation_id, turn=turn, seq=seq, type=type, payload=payload, at=timezone.now())
        for seq, (type, payload) in enumerate(payloads, start=100)
    )  # fmt: skip


def forget(*options: str) -> str:
    said = io.StringIO()
    call_command("forget_user", "zoe-zander", "--no-input", *options, stdout=said)
    return said.getvalue()


def test_a_dry_run_counts_and_removes_nothing(written):
    before = everything()
    said = forget("--dry-run")
    for words in ("1 conversations", "1 turns", "1 messages", "1 calls", "2 notes", "9 names"):
        assert words in said
    assert everything() == before


def test_nothing_that_the_person_wrote_is_left_nor_the_name_and_the_metadata_stays(written, zoe):
    rows = {model: model.objects.count() for model in (Turn, ToolCall, CancelRequest, Approval)}
    said = forget("--why", "asked for it")
    zoe.refresh_from_db()
    assert zoe.username.startswith("forgotten-")
    assert zoe.username in said
    left = everything()
    assert SECRET not in left
    assert "zander" not in left.lower()
    assert "zoe@" not in left
    assert {model: model.objects.count() for model in rows} == rows
    assert Message.objects.count() == 0
    assert not zoe.is_active
    assert not zoe.has_usable_password()
    act = Activity.objects.get(action="forget")
    assert (act.subject, act.why, act.changes["turns"]) == (zoe.username, "asked for it", 1)
    assert act.by_name.startswith("manage.py forget_user")
    assert set(CancelRequest.objects.values_list("by_name", flat=True)) == {zoe.username}


def test_events_of_others_and_exports_name_the_pseudonym(written, zoe, ada):
    said = forget()
    zoe.refresh_from_db()
    payloads = list(
        Event.objects.filter(seq__gte=100).order_by("seq").values_list("payload", flat=True)
    )
    assert [payload.get("by") for payload in payloads[:3]] == [zoe.username] * 3
    assert payloads[3]["changed_by"] == payloads[4]["allowed_earlier_by"] == zoe.username
    assert payloads[5]["ended_by"] == {"reason": "user", "source": "button", "by": zoe.username}
    assert payloads[6]["ended_by"] is None
    assert payloads[7]["by"] == "ada"
    assert Export.objects.get(filters__user=[zoe.username]).filters["when"] == ["24h"]
    assert "9 names" in said
    assert Activity.objects.get(action="forget").changes["names"] == 9


async def test_who_has_resumed_anothers_conversation_is_renamed_there(chat: ChatDriver, eve):
    def park_and_resume():
        turn = RowFactory(conversation=Conversation.objects.get(pk=chat.id)).turn("interrupted")
        Conversation.objects.filter(pk=chat.id).update(parked_at=timezone.now())
        make_staff(eve, "cancel_any")
        return turn.pk

    await in_database(park_and_resume)
    assert await services.resume_conversation(conversation_id=chat.id, user=eve)
    boss = await in_database(lambda: get_user_model().objects.create_superuser("boss"))
    await services.forget_user(user_id=eve.pk, by=boss, why="asked for it")
    await in_database(eve.refresh_from_db)
    event = await in_database(lambda: Event.objects.get(type="conversation_resumed"))
    assert event.payload == {"by": eve.username}
    assert eve.username.startswith("forgotten-")


def test_only_a_superuser_forgets_staff_and_nobody_forgets_themselves(zoe, ada, eve):
    make_staff(eve, "forget_user")
    boss = get_user_model().objects.create_superuser("boss")
    assert may_forget(zoe, by=eve)
    assert not may_forget(zoe, by=ada)
    assert not may_forget(boss, by=eve)
    assert not may_forget(eve, by=eve)
    assert may_forget(eve, by=boss)
    assert not may_forget(boss, by=boss)


async def test_what_runs_for_the_person_is_cancelled_and_then_removed(
    chat: ChatDriver, fake_tools: FakeTools, eve, settings
):
    settings.TURNS_SWEEP_INTERVAL = 0.05
    await in_database(lambda: make_staff(eve, "forget_user"))
    chat.use_script([call("a", "held")], [text(SECRET)])
    turn_id = await chat.say(SECRET)
    await chat.running(turn_id, "a")
    with pytest.raises(NotAllowed):
        await services.forget_user(user_id=chat.user.pk, by=chat.user, why="x")
    await services.forget_user(user_id=chat.user.pk, by=eve, why="asked for it")
    await chat.sink.until_ended(turn_id)

    def emptied():
        return Conversation.objects.filter(pk=chat.id, emptied_at__isnull=False).exists()

    await eventually(lambda: in_database(emptied))
    assert SECRET not in await in_database(everything)


def test_the_page_that_deletes_a_user_and_an_action_lead_to_the_page_that_counts(written, zoe, eve):
    eve = make_staff(eve, "forget_user", "view_user", "delete_user", "view_activity")
    client = sign_in(eve)
    page = reverse("admin:turns_forget_user", args=[zoe.pk])
    deletion = client.get(reverse("admin:auth_user_delete", args=[zoe.pk])).content.decode()
    assert f'href="{page}"' in deletion
    chosen = {"action": "forget", "_selected_action": [zoe.pk]}
    answer = client.post(reverse("admin:auth_user_changelist"), chosen)
    assert (answer.status_code, answer.url) == (302, page)
    shown = client.get(page).content.decode()
    assert "<dt>messages</dt><dd>1</dd>" in shown
    assert client.post(page, {"why": " "}).status_code == 200
    zoe.refresh_from_db()
    assert zoe.username == "zoe-zander"
    answer = client.post(page, {"why": "asked for it"}, follow=True)
    assert "asked for it" in answer.content.decode()
    zoe.refresh_from_db()
    assert zoe.username.startswith("forgotten-")
    assert Activity.objects.get(action="forget").by == eve
    stranger = sign_in(make_staff(eve, "view_user", "delete_user"))
    assert (
        page not in stranger.get(reverse("admin:auth_user_delete", args=[zoe.pk])).content.decode()
    )
