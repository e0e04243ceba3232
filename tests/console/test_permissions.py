"""Who may see that something happened, who may see what was said, and the groups that a new site has."""

import json
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.models.signals import post_migrate
from django.test import Client
from django.urls import reverse

from governance.models import Approval, Export, ToolCall
from tests.console.planted import SECRET
from tests.staff import sign_in
from tests.turns.row_factory import make_repair
from turns.models import (
    Attachment,
    CancelRequest,
    Conversation,
    Repair,
    RunningTurn,
    Turn,
)
from turns.storage.groups import FIRST_MIGRATION, GROUPS

pytestmark = pytest.mark.django_db(transaction=True)

PAGES = (Turn, RunningTurn, Conversation, CancelRequest, Repair, ToolCall, Approval)
EXPORTED = tuple(model for model in PAGES if model is not RunningTurn)


def migrated(*, backwards: bool = False) -> None:
    """Tell what `migrate` tells after it has run the migration of the groups."""
    app, name = FIRST_MIGRATION
    plan = [(SimpleNamespace(app_label=app, name=name, operations=[]), backwards)]
    config = apps.get_app_config("turns")
    post_migrate.send(config, app_config=config, plan=plan, using="default", verbosity=0)


@pytest.fixture
def groups(db):
    """The groups as a new site has them; the suite's database was flushed."""
    migrated()


@pytest.fixture
def member(groups):
    """Return a function that makes staff of one group and signs them in."""

    def make(group: str) -> Client:
        user = get_user_model().objects.create_user(group.split()[-1], password="pw", is_staff=True)
        user.groups.add(Group.objects.get(name=group))
        return sign_in(user)

    return make


def pages() -> list[str]:
    found = [reverse("admin:turns_overview")]
    for model in PAGES:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        found.append(reverse(f"{name}_changelist"))
        found += [reverse(f"{name}_change", args=[row.pk]) for row in model.objects.all()]
    return found


def texts(client: Client) -> dict[str, str]:
    answers = {page: client.get(page) for page in pages()}
    assert {answer.status_code for answer in answers.values()} == {200}
    return {page: answer.content.decode() for page, answer in answers.items()}


def test_an_auditor_sees_that_it_happened_and_nothing_of_what_was_said(said_things, member):
    auditor = member("Governance auditors")
    found = texts(auditor)
    assert [page for page, text in found.items() if SECRET in text] == []
    assert any("olga" in text and "why" in text for text in found.values())
    search = reverse("admin:turns_conversation_changelist")
    assert "0 conversations" in auditor.get(search, {"q": SECRET}).content.decode()


def test_an_operator_sees_what_was_said(said_things, member):
    operator = member("Governance operators")
    found = texts(operator)
    by_model = {
        model
        for model in PAGES
        for page, text in found.items()
        if f"/{model._meta.model_name}/" in page and SECRET in text
    }
    assert by_model == {Turn, RunningTurn, Conversation, CancelRequest, ToolCall, Approval}
    search = reverse("admin:turns_conversation_changelist")
    assert "1 conversation" in operator.get(search, {"q": SECRET}).content.decode()


def exported(client: Client, model: type, format: str) -> str:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_export"
    answer = client.get(reverse(name, args=[format]))
    assert answer.status_code == 200
    return answer.getvalue().decode()


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize(
    ("group", "with_content"),
    [
        ("Governance auditors", set()),
        ("Governance operators", {Turn, Conversation, CancelRequest, ToolCall, Approval}),
    ],
)
def test_exports_have_no_more_than_their_pages(said_things, member, group, with_content, format):
    client = member(group)
    texts = {model: exported(client, model, format) for model in EXPORTED}
    assert {model for model, text in texts.items() if SECRET in text} == with_content
    assert all("ada" in text for text in texts.values())
    records = Export.objects.values_list("source", "rows", "has_content")
    wanted = {(model._meta.label, 1, bool(with_content)) for model in EXPORTED}
    assert set(records) == wanted


@pytest.mark.parametrize("format", ["csv", "json"])
def test_where_a_file_is_stored_is_told_to_nobody(said_things, admin_client, admin_user, format):
    """Whoever knows it may get the file past the permissions, by a storage that others can read too."""
    Attachment.objects.create(owner=admin_user, name="a.txt", size=1, path="attachments/ab/abcdef")
    text = exported(admin_client, Attachment, format)
    assert "a.txt" in text
    assert "abcdef" not in text
    guess = {"path__contains": "abcdef"}
    assert admin_client.get("/admin/turns/attachment/", guess).status_code == 400


def test_an_export_knows_whose_turn_it_was(said_things, member):
    Turn.objects.update(agent="planner")
    operator = member("Governance operators")
    for model in (ToolCall, Approval, CancelRequest, Repair):
        (row,) = json.loads(exported(operator, model, "json"))
        assert (row["user"], row["agent"], row["turn_number"]) == ("ada", "planner", 1)
    (request,) = json.loads(exported(operator, CancelRequest, "json"))
    assert (request["said"], request["answer"], request["note"]) == (SECRET, SECRET, "why")


def test_a_call_of_no_turn_is_exported_too(said_things, member):
    ToolCall.objects.update(group="of another program")
    (row,) = json.loads(exported(member("Governance auditors"), ToolCall, "json"))
    assert (row["user"], row["group"]) == (None, "of another program")


def test_a_turn_whose_history_was_repaired_twice_is_listed_once(said_things, member):
    make_repair(said_things)
    page = member("Governance auditors").get(
        reverse("admin:turns_turn_changelist"), {"happened": "repaired"}
    )
    assert [turn.pk for turn in page.context["cl"].result_list] == [said_things.pk]


@pytest.mark.parametrize(
    ("group", "may"), [("Governance auditors", False), ("Governance operators", True)]
)
def test_only_operators_tune_and_cancel(said_things, member, group, may):
    client = member(group)
    running = client.get(reverse("admin:turns_runningturn_changelist")).content.decode()
    assert ("Cancel this turn" in running) is may
    listed = client.get(reverse("admin:turns_turn_changelist")).content.decode()
    assert ('value="cancel_turns"' in listed) is may
    edit = reverse("admin:governance_toolpolicy_add")
    assert client.get(edit).status_code == (200 if may else 403)
    tokens = reverse("admin:webchat_apitoken_changelist")
    assert client.get(tokens).status_code == 403


def test_the_page_of_a_turn_says_why_and_which_turn_it_is(said_things, member):
    Turn.objects.update(
        status="cancelled", ended_by_reason="admin", ended_by_source="admin", ended_by_name="olga"
    )
    address = reverse("admin:turns_turn_change", args=[said_things.pk])
    chat = reverse("webchat:conversation", args=[said_things.conversation_id])
    for group, may_see_chats in (("Governance auditors", False), ("Governance operators", True)):
        page = member(group).get(address).content.decode()
        assert str(said_things.pk) in page
        assert "olga" in page
        assert ": why" in page
        assert (chat in page) is may_see_chats


def test_a_new_site_has_the_groups_with_permissions_that_exist(groups):
    for name, permissions in GROUPS.items():
        held = Group.objects.get(name=name).permissions
        pairs = held.values_list("content_type__app_label", "codename")
        assert {f"{app}.{codename}" for app, codename in pairs} == set(permissions)


def test_a_group_is_made_once_and_stays_as_it_was_left(groups):
    auditors = Group.objects.get(name="Governance auditors")
    auditors.permissions.clear()
    operators = Group.objects.filter(name="Governance operators")
    operators.delete()
    config = apps.get_app_config("turns")
    post_migrate.send(config, app_config=config, plan=[], using="default", verbosity=0)
    assert not operators.exists()
    migrated(backwards=True)
    assert not operators.exists()
    migrated()
    assert operators.get().permissions.count() > 0
    assert auditors.permissions.count() == 0
