"""A tour of the admin as each kind of staff user: every link opens, and every offered action may be taken."""

import re
from collections import deque
from collections.abc import Iterator
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.urls import reverse

from tests.console.visitor import Page, plain
from tests.staff import sign_in
from turns.storage.groups import GROUPS

pytestmark = pytest.mark.django_db(transaction=True)

ROLES = {
    "auditor": GROUPS["Governance auditors"],
    "on call": GROUPS["Governance operators"],
    "viewer": (
        "governance.view_content",
        "governance.view_toolcall",
        "turns.view_conversation",
        "turns.view_process",
        "turns.view_turn",
    ),
    "limit editor": (
        "governance.add_toolpolicy",
        "governance.change_toolpolicy",
        "governance.view_policychange",
        "governance.view_toolpolicy",
    ),
    "plain": (),
    "superuser": (),
}
# Pages of Django itself, and addresses that do something or end the visit.
LEFT_OUT = re.compile(r"/admin/(auth|axes|jsi18n|logout|password_change)|/export/")


def client_of(role):
    user = get_user_model().objects.create_user(
        role, is_staff=True, is_superuser=role == "superuser"
    )
    for name in ROLES[role]:
        app, codename = name.split(".")
        found = Permission.objects.get(content_type__app_label=app, codename=codename)
        user.user_permissions.add(found)
    return sign_in(user)


def kind_of(address):
    """Return what pages have in common that differ only in the row or in the values of filters."""
    parts = urlsplit(address)
    names = {name for name, _value in parse_qsl(parts.query)} - {"_changelist_filters"}
    return re.sub(r"/(\d+|[0-9a-f-]{36})/", "/row/", parts.path), tuple(sorted(names))


def tour(client) -> Iterator[tuple[str, str]]:
    """Follow one link of each kind, from the first page on; yield the addresses and the pages.

    The links by which a list filters itself are left out: they combine without end.
    """
    waiting, known = deque([reverse("admin:index")]), set()
    while waiting:
        address = waiting.popleft()
        answer = client.get(address, follow=True)
        assert answer.status_code == 200, address
        html = answer.content.decode()
        yield address, html
        for link in [link for links in Page(html).links.values() for link in links]:
            target = urljoin(address, link).partition("#")[0]
            if not target.startswith("/admin/") or LEFT_OUT.search(target):
                continue
            if urlsplit(target).path == urlsplit(address).path:
                continue
            if (kind := kind_of(target)) not in known:
                known.add(kind)
                waiting.append(target)


def empty_headings(html):
    main = html.partition('id="content"')[2]
    found = re.findall(r"<(h[1-6]|caption|legend)\b[^>]*>(.*?)</\1>", main, re.DOTALL)
    return [tag for tag, inner in found if not plain(re.sub(r"<[^>]+>", "", inner))]


def refused_actions(client, address, html):
    """Return the actions of the page's menu that its reader may not take."""
    form = re.search(r'<select[^>]*name="action"[^>]*>(.*?)</select>', html, re.DOTALL)
    row = re.search(r'name="(_selected_action|chosen)" value="([^"]+)"', html)
    if form is None or row is None:
        return []
    names = re.findall(r'<option value="([^"]+)"', form[1])
    sent = {"_act": "1", "index": "0", row[1]: row[2]}
    answers = {name: client.post(address, {**sent, "action": name}) for name in names}
    return [name for name, answer in answers.items() if answer.status_code not in (200, 302)]


@pytest.mark.parametrize(
    ("role", "is_empty"),
    [*((role, False) for role in ROLES), *((role, True) for role in ("viewer", "superuser"))],
)
def test_every_page_that_a_reader_is_led_to_opens_and_offers_what_they_may_do(
    request, role, is_empty
):
    if not is_empty:
        request.getfixturevalue("planted")
    client = client_of(role)
    pages = dict(tour(client))
    assert len(pages) == 1 if role == "plain" else len(pages) > 3
    headless = {address for address, html in pages.items() if empty_headings(html)}
    assert headless == set()
    # At the end, because an action may change what other pages show.
    for address, html in pages.items():
        assert refused_actions(client, address, html) == [], address
