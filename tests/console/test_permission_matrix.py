"""Every page, action and export of the admin: with each permission alone, without it, and with each group."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from tests.console.buttons import BUTTONS, CONTENT
from tests.console.permission_table import (
    APPS,
    NOBODY,
    Needs,
    edits,
    opens,
    our_admins,
    pages_of,
)
from tests.console.planted import SECRET
from turns.storage.groups import GROUPS

pytestmark = pytest.mark.django_db(transaction=True)

GROUP_PERMISSIONS = [frozenset(permissions) for permissions in GROUPS.values()]


class Held(BaseBackend):
    """Whoever is signed in holds what the test gives them."""

    permissions: ClassVar[frozenset[str]] = frozenset()

    def get_user(self, user_id: int) -> Any:
        user: Any = get_user_model()._default_manager.get(pk=user_id)
        user.is_superuser = "superuser" in self.permissions
        return user

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        return set(self.permissions)


class Staff:
    """One member of staff whose permissions a test changes as it likes."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def holding(self, permissions: frozenset[str]) -> Client:
        Held.permissions = permissions
        return self.client


@pytest.fixture
def staff(db, settings) -> Iterator[Staff]:
    backend = f"{__name__}.{Held.__name__}"
    settings.AUTHENTICATION_BACKENDS = [backend]
    client = Client()
    user = get_user_model()._default_manager.create_user("olga", is_staff=True)
    client.force_login(user, backend=backend)
    yield Staff(client)
    Held.permissions = frozenset()


@pytest.fixture
def every_permission(db) -> frozenset[str]:
    """All that a member of staff can hold."""
    pairs = Permission.objects.values_list("content_type__app_label", "codename")
    return frozenset(f"{app}.{codename}" for app, codename in pairs)


def without(permissions: frozenset[str], needs: Needs) -> Iterator[frozenset[str]]:
    """All permissions but those of one need, for each need."""
    return (permissions - alternatives for alternatives in needs)


def of_one_each(needs: Needs) -> frozenset[str]:
    """No more than what is needed."""
    return frozenset(min(alternatives) for alternatives in needs)


def everything_stored() -> dict[str, list[Any]]:
    """Every row of the project's own tables."""
    models = [model for app in APPS for model in apps.get_app_config(app).get_models()]
    return {
        model.__name__: list(model._default_manager.order_by("pk").values()) for model in models
    }


def text_of(client: Client, address: str) -> str:
    """What a page or an export says, if it opens at all."""
    answer: Any = client.get(address)
    assert answer.status_code in (200, 302, 403), address
    return str(answer.getvalue().decode())


@pytest.mark.parametrize("model_admin", our_admins(), ids=lambda it: it.opts.model_name)
def test_a_page_opens_with_what_it_needs_and_with_nothing_less(
    planted, staff, every_permission, model_admin
):
    """Whoever holds all other permissions stays outside: so does whoever holds any one of those."""
    for address, needs in pages_of(model_admin):
        roles = {frozenset[str](), *GROUP_PERMISSIONS, *without(every_permission, needs)}
        roles |= {frozenset({permission}) for need in needs for permission in need}
        roles |= set() if needs is NOBODY else {of_one_each(needs)}
        wrong = {
            (address, answer.status_code, " ".join(sorted(held))[:200])
            for held in roles
            if (answer := staff.holding(held).get(address)).status_code
            not in ((200, 302) if opens(held, needs) else (403,))
        }
        assert wrong == set()


def test_no_page_has_content_for_who_may_see_everything_but_content(
    planted, staff, every_permission
):
    client = staff.holding(every_permission - CONTENT)
    pages = [page for model_admin in our_admins() for page, _needs in pages_of(model_admin)]
    assert [page for page in pages if SECRET in text_of(client, page)] == []
    assert any(SECRET in text_of(staff.holding(every_permission), page) for page in pages)


@pytest.mark.parametrize("model_admin", our_admins(), ids=lambda it: it.opts.model_name)
def test_not_even_a_superuser_adds_rewrites_or_deletes_what_is_a_record(
    planted, staff, every_permission, model_admin
):
    model, client = model_admin.model, staff.holding(every_permission | {"superuser"})
    row = model._default_manager.last()
    before = everything_stored()

    def send(view: str, *args: Any, **sent: Any) -> int:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}"
        answer: Any = client.post(reverse(name, args=args), sent)
        return int(answer.status_code)

    for verb, args in (("add", ()), ("change", (row.pk,)), ("delete", (row.pk,))):
        if edits(model, verb) is NOBODY:
            assert send(verb, *args, post="yes", by_name="nobody", status="completed") == 403, verb
    if edits(model, "delete") is NOBODY:
        send("changelist", action="delete_selected", _selected_action=str(row.pk), post="yes")
    assert everything_stored() == before


@pytest.mark.parametrize("button", BUTTONS, ids=lambda button: button.name)
def test_a_button_does_its_work_for_who_may_press_it_and_for_nobody_else(
    planted, staff, every_permission, button
):
    before = everything_stored()
    others = [held for held in GROUP_PERMISSIONS if not opens(held, button.needs)]
    for held in [frozenset[str](), *others, *without(every_permission, button.needs)]:
        answer = button.press(staff.holding(held), planted)
        assert answer.status_code in (200, 302, 403), held
        assert everything_stored() == before, sorted(held)
    assert button.press(staff.holding(of_one_each(button.needs)), planted).status_code == 302
    assert everything_stored() != before
