"""A host below a prefix, with `ATOMIC_REQUESTS`, `LoginRequiredMiddleware` and hashed static files alone."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.e2e.chromium import started_chromium
from tests.projects.hosts import PASSWORD, ROOT, HostProject
from tests.projects.site_client import ApiClient, SiteClient
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync

MAKE_PEOPLE = """
import django
django.setup()
from django.contrib.auth import get_user_model
from turns.models import Agent
from webchat import api_tokens
for name in ("ada", "ben"):
    get_user_model().objects.create_user(name, password=%r)
grace = get_user_model().objects.create_superuser("grace", password=%r)
Agent.objects.create(name="florist")
print(api_tokens.issue(user=grace, name="test")[1])
"""
NONCE = re.compile(r"'nonce-([\w-]{20,})'")
HASHED = re.compile(r"\.[0-9a-f]{12}\.(?:js|css|svg)$")


class Site(NamedTuple):
    url: str
    token: str
    log: Path


@pytest.fixture(scope="module")
def site(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("strict")
    host = HostProject("strict", path=(installed, ROOT / "tests/projects"), directory=directory)
    host.migrate()
    host.manage("collectstatic", "--no-input", "--verbosity", "0")
    plain = {path.name for path in (directory / "static" / "webchat").rglob("*.js")}
    assert plain
    assert all(map(HASHED.search, plain))
    assert host.complaints() == []
    token = host.run("-c", MAKE_PEOPLE % (PASSWORD, PASSWORD)).strip()
    with host.serving("django", "serve", "--port", "{port}") as url:
        yield Site(f"{url}/app", token, directory / "server.log")


@pytest.fixture
def visitor(site: Site) -> Iterator[SiteClient]:
    with SiteClient(site.url) as client:
        client.follow_redirects = False
        yield client


def test_probes_programs_and_the_sign_in_pass_the_middleware_that_asks_everybody_to_sign_in(
    site, visitor
):
    away = visitor.get("/support/")
    assert (away.status_code, away.headers["Location"]) == (
        302,
        "/app/assistant/login/?next=/app/support/",
    )
    for probe in ("healthz", "readyz"):
        assert visitor.get(f"/assistant/{probe}").json()["ok"] is True
    for path in ("api/conversations", "api/nowhere/at/all", "metrics"):
        assert visitor.get(f"/assistant/{path}").status_code in (401, 404), path
    assert visitor.get("/assistant/api/conversations").status_code == 401
    assert visitor.get("/assistant/api/docs").status_code == 200
    bearer = {"Authorization": f"Bearer {site.token}"}
    for path in ("api/conversations", "metrics"):
        assert visitor.get(f"/assistant/{path}", headers=bearer).status_code == 200, path
    assert visitor.get("/assistant/login/").status_code == 200


def test_turns_run_and_are_cancelled_while_each_request_of_the_host_is_a_transaction(site):
    with closing(ApiClient(f"{site.url}/assistant/api", token=site.token)) as api:
        assert api.run_turn('call order_status {"order": 7}')["calls"][0]["status"] == "succeeded"
        assert api.cancel_turn("wait 60")["status"] == "cancelled"
    bearer = {"Authorization": f"Bearer {site.token}"}
    with httpx.Client(trust_env=False, headers=bearer, timeout=LONG_PATIENCE) as program:
        listed = program.get(f"{site.url}/assistant/api/conversations").json()["conversations"]
        export = f"{site.url}/assistant/api/conversations/{listed[0]['conversation_id']}/export"
        assert program.get(export).status_code == 200


def test_the_policy_is_that_of_our_pages_and_the_host_has_its_own(visitor):
    policies = [
        visitor.get("/assistant/login/").headers["Content-Security-Policy"] for _ in range(2)
    ]
    nonces = {nonce for policy in policies for nonce in NONCE.findall(policy)}
    assert len(nonces) == 2
    visitor.sign_in("/assistant/login/", name="grace")
    chat = visitor.get("/assistant/")
    [nonce] = NONCE.findall(chat.headers["Content-Security-Policy"])
    assert f'<script type="importmap" nonce="{nonce}">' in chat.text
    ours = visitor.get("/admin/governance/toolpolicy/").headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in ours
    for path in ("/", "/admin/", "/admin/auth/user/"):
        assert "Content-Security-Policy" not in visitor.get(path).headers, path


def test_a_turn_is_cancelled_from_the_admin_inside_the_transaction_of_its_request(site, visitor):
    bearer = {"Authorization": f"Bearer {site.token}"}
    api = f"{site.url}/assistant/api"
    with httpx.Client(trust_env=False, headers=bearer, timeout=LONG_PATIENCE) as program:
        begun = program.post(f"{api}/conversations", json={}).json()["conversation_id"]
        sent = program.post(f"{api}/conversations/{begun}/messages", json={"text": "wait 60"})
        turn = f"{api}/turns/{sent.json()['turn_id']}"
        eventually_sync(lambda: program.get(turn).json()["calls"], timeout=LONG_PATIENCE)
        visitor.sign_in("/assistant/login/", name="grace")
        turns = "/admin/turns/turn/"
        chosen = {"action": "cancel_turns", "_selected_action": sent.json()["turn_id"]}
        assert visitor.post_form(turns, **chosen, why="Enough.").status_code == 302
        eventually_sync(lambda: program.get(turn).json()["status"] == "cancelled", timeout=PATIENCE)


def test_the_pages_have_the_name_and_the_logo_of_the_host_and_lead_back(site, visitor):
    page = visitor.get("/assistant/login/").text
    assert "Sign in to Petal &amp; Stem" in page
    assert re.search(r'src="/app/static/shop/shop\.[0-9a-f]{12}\.svg"', page)
    assert 'href="/app/support/">Back to Petal &amp; Stem</a>' in page
    assert "Turnkeeper" not in page


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with started_chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """Return a tab; whatever the browser complains about fails the test, and so does a file without a hash."""
    context = await browser.new_context()
    context.set_default_timeout(PATIENCE * 1000)
    page = await context.new_page()
    complaints: list[str] = []
    files: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    page.on("request", lambda request: "/static/" in request.url and files.append(request.url))
    yield page
    await context.close()
    assert complaints == []
    assert any("/webchat/js/" in url for url in files)
    assert [url for url in files if not HASHED.search(url)] == []


async def _sign_in(page: Page, name: str) -> None:
    await page.get_by_label("Username").fill(name)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in").click()


@pytest.mark.asyncio(loop_scope="session")
async def test_the_chat_talks_below_the_prefix_with_hashed_modules_alone(page, site):
    await page.goto(f"{site.url}/assistant/c/new/")
    await _sign_in(page, "ada")
    await page.get_by_label("Message to the agent").fill("say **Tomorrow.**")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.locator(".message-agent strong")).to_have_text("Tomorrow.")
    await expect(page.get_by_role("link", name="All flowers")).to_be_in_viewport(ratio=1)
    await expect(page.get_by_label("Message to the agent")).to_be_in_viewport(ratio=1)
    await page.get_by_role("link", name="Back to Petal & Stem").click()
    await page.wait_for_url(f"{site.url}/support/")
    said = site.log.read_text("utf-8")
    assert "markdown_it" not in said
    assert "Using selector" in said  # a DEBUG line of asyncio: the host's log takes all


@pytest.mark.asyncio(loop_scope="session")
async def test_chats_of_the_hosts_page_talk_with_the_nonce_of_the_host(page, site):
    await page.goto(f"{site.url}/support/")
    await _sign_in(page, "ben")
    for title in ("Your orders", "Ask a florist"):
        chat = page.get_by_role("region", name=title, exact=True)
        await chat.get_by_label("Message to the agent").fill("say Tulips.")
        await chat.get_by_role("button", name="Send", exact=True).click()
        await expect(chat.locator(".message-agent .message-text")).to_have_text(["Tulips."])


def test_no_answer_names_the_server(site):
    answer = httpx.get(f"{site.url}/assistant/healthz", trust_env=False, timeout=LONG_PATIENCE)
    assert "server" not in answer.headers
