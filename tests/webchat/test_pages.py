"""The pages: who may see them, what they carry, and that they run under a strict Content-Security-Policy."""

import json
import re
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.staticfiles import finders
from django.core.exceptions import ImproperlyConfigured
from django.template import Context, Template
from django.test import AsyncClient, Client
from django.urls import reverse
from django.utils import timezone

from governance import CancelSource
from governance.db import run_in_db_thread
from turns import selectors, services
from turns.models import Agent, Conversation
from webchat.page_texts import CHAT_TEXTS
from webchat.views import PER_PAGE

STATIC = Path(__file__).parents[2] / "static" / "webchat"
OF_THE_LIST = "conversations.js"
SCRIPTS = "\n".join(
    path.read_text() for path in sorted((STATIC / "js").rglob("*.js")) if path.name != OF_THE_LIST
)


class Page(HTMLParser):
    """What a page is made of: its elements with their attributes, and the text of its data blocks."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.data_blocks: dict[str, str] = {}
        self._data_id = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._data_id = str(dict(attrs).get("id", "")) if tag == "script" else ""

    def handle_data(self, data: str) -> None:
        if self._data_id:
            self.data_blocks[self._data_id] = data

    def handle_endtag(self, tag: str) -> None:
        self._data_id = ""

    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.elements if "id" in attributes]

    def count(self, wanted: str) -> int:
        return sum(tag == wanted for tag, _ in self.elements)

    def inline_code(self) -> list[str]:
        """Return everything that a policy without 'unsafe-inline' would refuse."""
        found = []
        for tag, attributes in self.elements:
            is_data = attributes.get("type") == "application/json"
            if tag == "style" or (tag == "script" and "src" not in attributes and not is_data):
                found.append(tag)
            found += [name for name in attributes if name == "style" or name.startswith("on")]
            found += [
                str(value) for value in attributes.values() if str(value).startswith("javascript:")
            ]
        return found


def address(conversation: services.ConversationSummary) -> str:
    return reverse("webchat:conversation", kwargs={"conversation_id": conversation.id})


@pytest.fixture
async def chat_page(user_client: AsyncClient, conversation: services.ConversationSummary) -> Page:
    answer = await user_client.get(address(conversation))
    assert answer.status_code == 200
    return Page(answer.content.decode())


@pytest.mark.parametrize("path", ["/", "/c/00000000-0000-4000-8000-000000000000/"])
async def test_pages_are_for_people_who_are_signed_in(transactional_db: None, path: str) -> None:
    answer = await AsyncClient().get(path)
    assert answer.status_code == 302
    assert answer["Location"] == f"{reverse('webchat:login')}?next={path}"


async def test_a_strangers_conversation_does_not_exist(
    conversation: services.ConversationSummary, stranger: User
) -> None:
    client = AsyncClient()
    await client.aforce_login(stranger)
    assert (await client.get(address(conversation))).status_code == 404


async def test_an_unknown_conversation_does_not_exist(user_client: AsyncClient) -> None:
    assert (await user_client.get(f"/c/{uuid4()}/")).status_code == 404


async def test_a_new_conversation_is_opened_and_listed(user_client: AsyncClient) -> None:
    empty = (await user_client.get("/")).content.decode()
    made = await user_client.post(reverse("webchat:new_conversation"))
    assert made.status_code == 302
    assert (await user_client.get(made["Location"])).status_code == 200
    listed = (await user_client.get("/")).content.decode()
    assert made["Location"] not in empty
    assert made["Location"] in listed


@pytest.fixture
async def librarian(user_client: AsyncClient) -> Agent:
    return await run_in_db_thread(Agent.objects.create)(
        name="librarian", description="Knows <b>books</b>."
    )


async def test_with_one_agent_there_is_nothing_to_choose(
    user_client: AsyncClient, conversation: services.ConversationSummary
) -> None:
    for path in ("/", address(conversation)):
        page = Page((await user_client.get(path)).content.decode())
        assert "new-agent" not in page.ids()


async def test_with_several_agents_one_is_chosen_by_name_and_the_default_is_preselected(
    user_client: AsyncClient, conversation: services.ConversationSummary, librarian: Agent
) -> None:
    preselected = [{"value": "assistant", "selected": None}, {"value": "librarian"}]
    for path, lists in (("/", 1), (address(conversation), 2)):
        html = (await user_client.get(path)).content.decode()
        page = Page(html)
        assert page.ids().count("new-agent") == 1
        options = [attributes for tag, attributes in page.elements if tag == "option"]
        themes = [{"value": each} for each in ("auto", "light", "dark")]
        options = [each for each in options if each not in themes]
        assert options == preselected * lists
        assert "<b>books" not in html
        labels = [attributes for tag, attributes in page.elements if tag == "label"]
        assert {"class": "visually-hidden", "for": "new-agent"} in labels


async def test_the_agent_that_was_chosen_answers_and_its_name_is_shown(
    user_client: AsyncClient, librarian: Agent
) -> None:
    made = await user_client.post(reverse("webchat:new_conversation"), {"agent": "librarian"})
    header = (await user_client.get(made["Location"])).content.decode()
    listed = (await user_client.get("/")).content.decode()

    assert '<option value="librarian" selected>librarian</option>' in header
    assert re.search(r'class="conversation-agent">.*Agent:</span> librarian<', listed)


async def test_an_agent_that_went_meanwhile_is_a_sentence_on_the_page(
    user_client: AsyncClient, librarian: Agent
) -> None:
    await run_in_db_thread(librarian.delete)()

    answer = await user_client.post(reverse("webchat:new_conversation"), {"agent": "librarian"})

    assert answer.status_code == 422
    html = answer.content.decode()
    assert 'role="alert"' in html
    assert "There is no agent named “librarian”" in html


async def test_a_conversation_is_not_made_by_looking(
    user_client: AsyncClient, person: User
) -> None:
    led = await user_client.get(reverse("webchat:new_conversation"))
    assert led.status_code == 302
    page = await user_client.get(led["Location"])
    assert page.status_code == 200
    assert " data-new" in page.content.decode()
    assert await conversations_of(person) == []


async def test_no_browser_keeps_what_only_the_signed_in_may_see(
    user_client: AsyncClient, conversation: services.ConversationSummary
) -> None:
    """Else the back button would show it to whoever sits there after the sign-out."""
    own = address(conversation)
    for path in (
        "/",
        own,
        f"{own}recent/",
        f"/c/new/{uuid4()}/",
        "/api/conversations",
        f"/api/conversations/{conversation.id}/messages",
        f"/api/conversations/{conversation.id}/history",
        f"/api/conversations/{conversation.id}/export",
    ):
        answer = await user_client.get(path)
        assert answer.status_code == 200
        assert set(answer["Cache-Control"].split(", ")) == {"private", "no-store"}


async def conversations_of(person: User) -> list[str]:
    return [str(row.id) for row in await selectors.list_conversations(user=person)]


async def test_an_empty_page_leads_to_its_conversation_once_there_is_one(
    user_client: AsyncClient, conversation: services.ConversationSummary, stranger: User
) -> None:
    path = f"/c/new/{conversation.id}/"
    led = await user_client.get(path)
    assert (led.status_code, led["Location"]) == (302, address(conversation))
    other = AsyncClient()
    await other.aforce_login(stranger)
    page = (await other.get(path)).content.decode()
    assert " data-new" in page  # whose it is, nobody learns
    answer = await other.post(
        "/api/conversations",
        {"conversation_id": str(conversation.id)},
        content_type="application/json",
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "conversation_not_found")


@run_in_db_thread
def plant_conversations(owner: User, titles: list[str], *, latest: datetime) -> None:
    """Plant conversations, each a second older than the one before."""
    rows = [Conversation(owner=owner, title=title) for title in titles]
    Conversation.objects.bulk_create(rows)
    for age, row in enumerate(rows):
        at = latest - timedelta(seconds=age)
        Conversation.objects.filter(pk=row.pk).update(updated_at=at)


async def test_all_conversations_are_read_page_by_page_also_those_that_a_search_finds(
    user_client: AsyncClient, person: User, stranger: User
) -> None:
    titles = [f"Tulips & more {number}" for number in range(PER_PAGE + 2)]
    now = timezone.now()
    await plant_conversations(person, [*titles, "Roses"], latest=now)
    await plant_conversations(stranger, ["Tulips & more of others"], latest=now)
    for query, wanted in (("", [*titles, "Roses"]), ("?search=TULIPS+%26", titles)):
        seen, link = [], query
        for pages in (1, 2):
            page = Page((await user_client.get(f"/{link}")).content.decode())
            listed = [one for _, one in page.elements if one.get("class") == "list-entry"]
            seen += [one["data-title"] for one in listed]
            links = {str(one["rel"]): str(one["href"]) for _, one in page.elements if "rel" in one}
            assert set(links) & {"prev", "next"} == ({"next"} if pages == 1 else {"prev"})
            link = links.get("next", "")
        assert seen == wanted


@pytest.mark.usefixtures("whole_hour")
async def test_conversations_stand_below_the_day_of_their_last_word(
    user_client: AsyncClient, person: User
) -> None:
    today = timezone.localtime().replace(hour=0, minute=0, second=1)
    for days, title in ((0, "now"), (1, "one"), (2, "two"), (6, "six"), (7, "seven"), (400, "old")):
        await plant_conversations(person, [title], latest=today - timedelta(days=days))
    html = (await user_client.get("/")).content.decode()
    shown = re.findall(r'class="list-day"[^>]*>([^<]*)<|data-title="([^"]*)"', html)
    assert [day or title for day, title in shown] == [
        *("Today", "now", "Yesterday", "one"),
        *("Last 7 days", "two", "six", "Earlier", "seven", "old"),
    ]


async def test_the_list_beside_the_chat_is_empty_at_first_and_finds_nothing_when_searched(
    user_client: AsyncClient,
) -> None:
    new = f"/c/new/{uuid4()}/"
    at_first = (await user_client.get(new)).content.decode()
    assert '<p class="list-nothing">Nothing here yet</p>' in at_first
    recent = reverse("webchat:recent_conversations", kwargs={"conversation_id": uuid4()})
    searched = (await user_client.get(recent, {"search": "tea"})).content.decode()
    assert '<p class="list-nothing">No conversation matches.</p>' in searched


async def test_the_list_beside_the_chat_marks_its_conversation_and_outlives_it(
    user_client: AsyncClient, person: User, conversation: services.ConversationSummary
) -> None:
    recent = reverse("webchat:recent_conversations", kwargs={"conversation_id": conversation.id})
    page = (await user_client.get(f"/c/{conversation.id}/")).content.decode()
    assert f'data-list-url="{recent}"' in page
    listed = (await user_client.get(recent)).content.decode()
    assert f'data-conversation-id="{conversation.id}" aria-current="page"' in listed
    await services.delete_conversation(
        conversation_id=conversation.id, user=person, source=CancelSource.API
    )
    assert '<p class="list-nothing">' in (await user_client.get(recent)).content.decode()


async def test_the_list_beside_the_chat_holds_nothing_of_others(
    person: User, stranger: User, conversation: services.ConversationSummary
) -> None:
    client = AsyncClient()
    recent = reverse("webchat:recent_conversations", kwargs={"conversation_id": conversation.id})
    assert (await client.get(recent)).status_code == 302
    await client.aforce_login(stranger)
    assert "list-entry" not in (await client.get(recent)).content.decode()
    await client.aforce_login(person)
    assert "list-entry" in (await client.get(recent)).content.decode()


async def test_the_empty_page_of_an_agent_has_its_name_and_an_unknown_one_is_a_sentence(
    user_client: AsyncClient, librarian: Agent
) -> None:
    new = reverse("webchat:new_conversation")
    page = await user_client.get(f"{new}?agent=librarian", follow=True)
    assert 'data-agent="librarian"' in page.content.decode()
    gone = await user_client.get(f"{new}?agent=%3Cb%3E", follow=True)
    assert gone.status_code == 422
    assert "There is no agent named “&lt;b&gt;”" in gone.content.decode()


async def test_a_conversation_is_not_made_by_another_site(person: User) -> None:
    client = AsyncClient(enforce_csrf_checks=True)
    await client.aforce_login(person)
    assert (await client.post(reverse("webchat:new_conversation"))).status_code == 403


async def test_a_title_is_text(user_client: AsyncClient, person: User) -> None:
    made = await services.create_conversation(user=person, title="<img src=x onerror=alert(1)>")
    for path in ("/", address(made)):
        html = (await user_client.get(path)).content.decode()
        assert "<img src=x" not in html
        assert "&lt;img src=x onerror=alert(1)&gt;" in html


async def test_the_chat_page_knows_where_its_socket_is(
    chat_page: Page, conversation: services.ConversationSummary
) -> None:
    chat = next(
        attributes for _, attributes in chat_page.elements if attributes.get("id") == "chat"
    )
    path = str(chat["data-socket-path"])
    assert path.replace(str(chat["data-placeholder-id"]), str(chat["data-conversation-id"])) == (
        f"/ws/conversations/{conversation.id}/"
    )


async def test_the_chat_page_leads_staff_to_its_conversation_in_the_admin(
    user_client: AsyncClient, conversation: services.ConversationSummary, person: User
) -> None:
    link = reverse("admin:turns_conversation_change", args=[conversation.id])
    found = []
    for is_staff, codenames in (
        (False, ["view_conversation"]),
        (True, []),
        (True, ["view_conversation"]),
    ):
        permissions = Permission.objects.filter(codename__in=codenames)
        await run_in_db_thread(person.user_permissions.set)(permissions)
        await User.objects.filter(pk=person.pk).aupdate(is_staff=is_staff)
        found.append(link in (await user_client.get(address(conversation))).content.decode())
    assert found == [False, False, True]


async def test_the_chat_page_has_landmarks_and_two_live_regions(chat_page: Page) -> None:
    assert (chat_page.count("main"), chat_page.count("h1"), chat_page.count("header")) == (1, 1, 1)
    roles = [str(attributes.get("role")) for _, attributes in chat_page.elements]
    assert (roles.count("status"), roles.count("alert"), roles.count("log")) == (1, 1, 1)
    log = next(
        attributes for _, attributes in chat_page.elements if attributes.get("role") == "log"
    )
    assert log["aria-live"] == "off"


async def test_ids_are_unique_and_every_one_that_the_scripts_want_is_there(chat_page: Page) -> None:
    ids = chat_page.ids()
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'byId\("([\w-]+)"', SCRIPTS))
    wanted |= set(re.findall(r'\["([\w-]+)", \(\) =>', SCRIPTS))
    assert wanted
    assert wanted <= set(ids)


async def test_the_list_has_what_its_script_wants(
    user_client: AsyncClient, conversation: services.ConversationSummary
) -> None:
    page = Page((await user_client.get("/")).content.decode())
    script = (STATIC / "js" / OF_THE_LIST).read_text()
    assert set(re.findall(r'byId\("([\w-]+)"', script)) <= set(page.ids())
    texts = json.loads(page.data_blocks["webchat-texts"])
    assert {"title_asked", "mark_asking_one", "mark_interrupted"} <= set(texts)


async def test_the_scripts_get_every_text_that_they_use(chat_page: Page) -> None:
    texts = json.loads(chat_page.data_blocks["webchat-texts"])
    assert set(texts) == set(CHAT_TEXTS)
    single = set(re.findall(r'\.text\(\s*"(\w+)"', SCRIPTS))
    single |= {
        key
        for pair in re.findall(r'\? "(\w+)" : "(\w+)"', SCRIPTS)
        for key in pair
        if key in CHAT_TEXTS
    }
    counted = set(re.findall(r'\.count\(\s*"(\w+)"', SCRIPTS))
    assert single <= set(texts)
    assert {f"{key}_{form}" for key in counted for form in ("one", "other")} <= set(texts)


@pytest.mark.parametrize(("part", "above"), [("net", "state"), ("net", "view"), ("state", "view")])
def test_the_parts_of_the_page_import_downwards(part: str, above: str) -> None:
    scripts = sorted((STATIC / "js" / part).glob("*.js"))
    assert scripts
    for script in scripts:
        assert not re.search(rf'from "\.\./{above}/', script.read_text()), script.name


def test_every_state_that_the_scripts_compose_a_text_for_has_one() -> None:
    for status in (
        "connecting",
        "resuming",
        "online",
        "slow",
        "offline",
        "reconnecting",
        "restarting",
        "busy",
    ):
        assert f"connection_{status}" in CHAT_TEXTS
    for status in (
        "offline",
        "reconnecting",
        "restarting",
        "busy",
        "signed_out",
        "not_found",
        "outdated",
    ):
        assert f"banner_{status}" in CHAT_TEXTS
    for kind in ("cancel_turn", "cancel_tool", "set_deadline"):
        for outcome in ("already_finished", "not_found", "denied", "not_cancellable"):
            assert f"{kind}_{outcome}" in CHAT_TEXTS


async def test_pages_need_nothing_inline_and_nothing_from_elsewhere(
    user_client: AsyncClient, conversation: services.ConversationSummary
) -> None:
    anonymous = AsyncClient()
    answers = [
        await user_client.get("/"),
        await user_client.get(address(conversation)),
        await anonymous.get(reverse("webchat:login")),
    ]
    for answer in answers:
        page = Page(answer.content.decode())
        assert page.inline_code() == []
        loaded = [
            str(attributes.get("src") or attributes.get("href"))
            for tag, attributes in page.elements
            if tag in {"script", "link", "img"} and ("src" in attributes or "href" in attributes)
        ]
        assert loaded
        assert all(source.startswith("/static/webchat/") for source in loaded)
        assert all(finders.find(source.removeprefix("/static/")) for source in loaded)


async def test_a_strict_policy_is_sent_with_every_answer(user_client: AsyncClient) -> None:
    for path in ("/", "/c/nowhere/", reverse("webchat:login")):
        policy = (await user_client.get(path))["Content-Security-Policy"]
        directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
        assert re.fullmatch(r"'self' 'nonce-[\w-]{20,}'", directives.pop("script-src"))
        assert directives == {
            "default-src": "'self'",
            "img-src": "'self' data:",
            "connect-src": "'self' ws://testserver",
            "frame-ancestors": "'none'",
            "base-uri": "'self'",
            "form-action": "'self'",
            "object-src": "'none'",
        }


def test_the_policy_names_the_secure_socket_on_a_secure_page(db: None) -> None:
    policy = Client().get(reverse("webchat:login"), secure=True)["Content-Security-Policy"]
    assert "connect-src 'self' wss://testserver;" in policy


def test_the_policy_can_be_changed_or_left_to_the_host(db: None, settings) -> None:
    settings.WEBCHAT_CSP = "default-src 'none'"
    assert Client().get(reverse("webchat:login"))["Content-Security-Policy"] == "default-src 'none'"
    settings.WEBCHAT_CSP = None
    assert "Content-Security-Policy" not in Client().get(reverse("webchat:login"))


def test_a_person_signs_in_and_out(person: User) -> None:
    client = Client()
    refused = client.post(reverse("webchat:login"), {"username": "ada", "password": "wrong"})
    assert refused.status_code == 200
    assert 'role="alert"' in refused.content.decode()
    entered = client.post(reverse("webchat:login"), {"username": "ada", "password": "pw"})
    assert (entered.status_code, entered["Location"]) == (302, reverse("webchat:conversations"))
    assert client.get(reverse("webchat:login"))["Location"] == reverse("webchat:conversations")
    assert client.get(reverse("webchat:logout")).status_code == 405
    client.post(reverse("webchat:logout"))
    assert client.get("/").status_code == 302


def test_signing_in_leads_to_where_one_wanted_to_go_but_not_to_another_site(
    person: User,
) -> None:
    wanted = {"username": "ada", "password": "pw", "next": "/?from=link"}
    assert Client().post(reverse("webchat:login"), wanted)["Location"] == "/?from=link"
    lured = {**wanted, "next": "https://evil.example/"}
    assert Client().post(reverse("webchat:login"), lured)["Location"] == reverse(
        "webchat:conversations"
    )


def test_the_tag_of_a_chat_says_what_it_lacks_without_a_request() -> None:
    page = Template("{% load webchat %}{% turnkeeper_chat %}")
    with pytest.raises(ImproperlyConfigured, match="needs the request"):
        page.render(Context())
