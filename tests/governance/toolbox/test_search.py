"""Searching the web: both built-in search engines, one of the project's own, and every way of not finding (G1)."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from governance.core.exceptions import InvalidToolInput, ToolFailed
from governance.toolbox.search_engines import SearchResult
from tests.governance.toolbox.http_server import HttpServer, answer

FOUND = """<!DOCTYPE html><html><head><title>django at DuckDuckGo</title></head><body>
<form id="search_form"><input name="q" value="django"></form>
<div class="serp__results"><div id="links" class="results">
  <div class="result results_links results_links_deep result--ad"><div class="links_main result__body">
    <h2 class="result__title"><a rel="nofollow" class="result__a"
      href="https://duckduckgo.com/y.js?ad_domain=shop.example&amp;u3=x">Buy now</a></h2>
    <a class="result__snippet" href="https://duckduckgo.com/y.js?ad_domain=shop.example">An advertisement</a>
  </div></div>
  <div class="result results_links results_links_deep web-result"><div class="links_main links_deep result__body">
    <h2 class="result__title"><a rel="nofollow" class="result__a"
      href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fwww.djangoproject.com%2F%3Fa%3D1%26b%3D2&amp;rut=4711">The web
      framework &amp; more</a></h2>
    <div class="result__extras"><a class="result__url" href="//duckduckgo.com/l/?uddg=x">www.djangoproject.com</a></div>
    <a class="result__snippet" href="//duckduckgo.com/l/?uddg=x"><b>Django</b> makes it
      easier</a>
  </div></div>
  <div class="result results_links web-result"><div class="links_main result__body">
    <h2 class="result__title"><a class="result__a" href="https://plain.example/">Plain link</a></h2>
  </div></div>
  <div class="result"><h2><a class="result__a" href="javascript:alert(1)">Not a page</a></h2></div>
</div></div></body></html>"""
NOTHING = (
    '<html><body><div class="no-results">No results found for <b>xyzzy</b>.</div></body></html>'
)
CHALLENGE = (
    '<html><form id="challenge-form" action="//duckduckgo.com/anomaly.js?sv=html"></form></html>'
)


@pytest.fixture
async def server():
    async with HttpServer().serve() as running:
        yield running


@pytest.fixture
def duckduckgo(harness, server):
    harness.change(web_allow_private=False, search_url=server.url("/html/"))

    def set_up(body, **options):
        server.pages["/html/"] = answer(body, content_type="text/html; charset=UTF-8", **options)

    return set_up


@pytest.fixture
def searxng(harness, server):
    harness.change(
        web_allow_private=False, search_provider="searxng", search_url=server.url("/searx/")
    )

    def set_up(body, *, content_type="application/json", **options):
        text = body if isinstance(body, str) else json.dumps(body)
        server.pages["/searx/search"] = answer(text, content_type=content_type, **options)

    return set_up


def asked(server):
    return parse_qs(urlsplit(server.requests[-1].split()[1]).query)


async def fails(harness, match):
    with pytest.raises(ToolFailed, match=match) as caught:
        await harness.call("web_search", query="django")
    return str(caught.value)


async def test_duckduckgo_results_come_with_their_real_addresses_and_without_advertisements(
    harness, server, duckduckgo
):
    duckduckgo(FOUND)
    assert await harness.call("web_search", query="django & co") == (
        "1. The web framework & more\n"
        "   https://www.djangoproject.com/?a=1&b=2\n"
        "   Django makes it easier\n"
        "2. Plain link\n"
        "   https://plain.example/"
    )
    assert asked(server) == {"q": ["django & co"]}


async def test_no_more_than_asked_for(harness, duckduckgo):
    duckduckgo(FOUND)
    said = await harness.call("web_search", query="django", max_results=1)
    assert "2." not in said


async def test_nothing_found_is_no_error(harness, duckduckgo):
    duckduckgo(NOTHING)
    assert await harness.call("web_search", query="xyzzy") == (
        "Nothing was found for 'xyzzy'. Try other or fewer words."
    )


async def test_being_taken_for_a_robot_is_said_and_never_looks_like_nothing_found(
    harness, duckduckgo
):
    duckduckgo(CHALLENGE, status="202 Accepted")
    assert "GOVERNANCE_SEARCH_PROVIDER" in await fails(harness, "for a robot")


@pytest.mark.parametrize("body", ["", "<html><body>Welcome</body></html>", CHALLENGE])
async def test_a_page_of_an_unknown_shape_is_said_to_be_one(harness, duckduckgo, body):
    duckduckgo(body)
    await fails(harness, "unknown format")


async def test_searxng_results(harness, server, searxng):
    searxng(
        {
            "query": "django",
            "number_of_results": 0,
            "results": [
                {
                    "url": "https://www.djangoproject.com/",
                    "title": "Django",
                    "content": "A\nframework ",
                    "engine": "brave",
                    "score": 9.0,
                },
                {"url": "https://no-text.example/", "title": "No text", "content": None},
                {"url": "ftp://not-the-web.example/", "title": "Not a page"},
                {"url": "https://no-title.example/", "title": ""},
            ],
            "answers": [],
            "suggestions": [],
            "unresponsive_engines": [["google", "timeout"]],
        }
    )
    assert await harness.call("web_search", query="django") == (
        "1. Django\n   https://www.djangoproject.com/\n   A framework\n"
        "2. No text\n   https://no-text.example/"
    )
    assert asked(server) == {"q": ["django"], "format": ["json"]}
    assert "accept: application/json" in server.requests[-1].lower()


async def test_searxng_without_results(harness, searxng):
    searxng({"results": []})
    assert "Nothing was found" in await harness.call("web_search", query="xyzzy")


@pytest.mark.parametrize("status", ["403 Forbidden", "429 Too Many Requests"])
async def test_searxng_that_refuses_says_what_to_look_for(harness, searxng, status):
    searxng("no", status=status)
    await fails(harness, "allows the format json")


@pytest.mark.parametrize(
    "body",
    ["<html>", "[]", "null", '{"results": {"a": 1}}', '{"results": ["x"]}', "{}", "[" * 100_000],
)
async def test_searxng_of_an_unknown_shape_is_said_to_be_one(harness, searxng, body):
    searxng(body)
    await fails(harness, "unknown format")


async def test_searxng_without_an_address_says_which_setting_is_missing(harness):
    harness.change(search_provider="searxng")
    await fails(harness, "GOVERNANCE_SEARCH_URL")


async def test_engine_that_cannot_be_reached_is_a_sentence(harness):
    async with HttpServer().serve() as gone:
        url = gone.url()
    harness.change(search_provider="searxng", search_url=url)
    await fails(harness, "search engine cannot be reached.*GOVERNANCE_SEARCH_PROVIDER")


async def test_engine_whose_name_is_not_found_is_a_sentence_about_the_engine(harness):
    async def resolve(host, port):
        return []

    harness.change(search_provider="duckduckgo", web_resolve=resolve)
    said = await fails(harness, "search engine cannot be reached")
    assert "Check the address" not in said


async def test_the_engine_may_be_private_but_not_where_it_redirects_to(harness, server, searxng):
    """The administrator chose one address: that is no leave for others on the same machine."""
    async with HttpServer().serve() as secret:
        secret.pages["/"] = answer(
            '{"results": [{"title": "hush", "url": "https://a.b/"}]}',
            content_type="application/json",
        )
        searxng("", status="302 Found", location=secret.url("/"))
        await fails(harness, "private or local network")
        assert secret.requests == []


async def test_without_an_address_of_the_administrators_private_ones_are_refused(harness, server):
    async def resolve(host, port):
        return ["127.0.0.1"]

    harness.change(web_allow_private=False, web_resolve=resolve)
    await fails(harness, "private or local network")


async def own_engine(query, *, limit, url, client):
    """A search engine of the project's own."""
    return [SearchResult(title=f"{query} {n}", url=f"https://{n}.example/") for n in range(50)]


async def test_a_provider_of_the_projects_own_is_found_by_its_dotted_path(harness):
    harness.change(search_provider=f"{__name__}.own_engine")
    said = await harness.call("web_search", query="a", max_results=2)
    assert said == "1. a 0\n   https://0.example/\n2. a 1\n   https://1.example/"


@pytest.mark.parametrize("name", ["", "bing", "no.such.module", "governance.no_such", ".x"])
async def test_an_unknown_provider_is_a_sentence(harness, name):
    harness.change(search_provider=name)
    await fails(harness, "correct GOVERNANCE_SEARCH_PROVIDER")


def test_it_declares_how_it_is_governed(harness):
    tool = harness.registry.get("web_search")
    assert tool.limits.timeout == 60
    assert not tool.side_effects
    with pytest.raises(InvalidToolInput, match="max_results"):
        tool.validate({"query": "x", "max_results": 100})
    with pytest.raises(InvalidToolInput, match="query"):
        tool.validate({"query": ""})
