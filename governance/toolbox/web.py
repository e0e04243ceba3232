"""The `web_fetch` tool: one page or document of the public web as text (G1).

The address that was checked is the address that is connected to, at every redirect: a name that resolves
differently a moment later (DNS rebinding) changes nothing.
"""

import asyncio
import ssl
from typing import Annotated

import httpx
from pydantic import Field

from governance.core.exceptions import ToolFailed
from governance.core.tools import Tool, ToolContext, make_tool
from governance.toolbox.addresses import resolve
from governance.toolbox.bodies import Body, read_body
from governance.toolbox.excerpt import spaced
from governance.toolbox.pages import read_page
from governance.toolbox.settings import SettingsSource, ToolboxSettings
from governance.toolbox.workspace import shown

_TIMEOUT = 60.0
_URL_LENGTH = 8000
_ERROR_EXCERPT = 500
_ACCEPT = "text/html, application/json, text/*;q=0.9, application/xml;q=0.8, */*;q=0.1"


def make_web_fetch(settings: SettingsSource) -> Tool:
    """Return the tool."""
    return make_tool(Web(settings).web_fetch, timeout=_TIMEOUT)


class Web:
    """Fetches as the settings of the moment allow."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings
        self._tls: ssl.SSLContext | None = None

    async def web_fetch(
        self,
        context: ToolContext,
        url: Annotated[str, Field(min_length=1, description="http:// or https://")],
        max_chars: Annotated[
            int, Field(ge=100, le=200_000, description="Characters to return.")
        ] = 20_000,
    ) -> str:
        """Fetch a page or a document from the web and return its text; HTML is made readable."""
        settings = self._settings()
        if self._tls is None:  # reads the list of authorities from disk
            self._tls = await asyncio.to_thread(httpx.create_ssl_context)
        address = _parse(url)
        try:
            body = await _fetch(address, context, settings=settings, tls=self._tls)
        except httpx.HTTPError as error:
            raise ToolFailed(_explain(error, settings=settings)) from error
        return await asyncio.to_thread(
            _render, body, context, settings=settings, max_chars=max_chars
        )


class CheckedTransport(httpx.AsyncBaseTransport):
    """Resolves the host itself, and connects to an address that was checked and to no other."""

    def __init__(self, settings: ToolboxSettings, *, tls: ssl.SSLContext) -> None:
        self._settings = settings
        # A kept connection would be used again for another host at the same address, whose certificate nobody checked.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._transport = httpx.AsyncHTTPTransport(verify=tls, limits=limits, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the first address of its host that answers."""
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        failure: httpx.ConnectError | httpx.ConnectTimeout | None = None
        for address in await resolve(url.host, port, settings=self._settings):
            pinned = httpx.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,  # with the Host of the original
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": url.host},
            )
            try:
                return await self._transport.handle_async_request(pinned)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        assert failure is not None  # noqa: S101 - there is at least one address
        raise failure

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()


async def _fetch(
    url: httpx.URL, context: ToolContext, *, settings: ToolboxSettings, tls: ssl.SSLContext
) -> Body:
    client = httpx.AsyncClient(
        transport=CheckedTransport(settings, tls=tls),
        headers={
            "User-Agent": settings.web_user_agent,
            "Accept": _ACCEPT,
            "Accept-Encoding": "gzip",
        },
        timeout=httpx.Timeout(settings.web_read_timeout, connect=settings.web_connect_timeout),
        trust_env=False,
    )
    async with client:
        for _ in range(settings.web_max_redirects + 1):
            context.progress(f"Asking {shown(url.host)}")
            answer = await _ask(client, url, context=context, settings=settings)
            if isinstance(answer, Body):
                return answer
            url = _check(answer)
    raise ToolFailed(f"The address redirects more than {settings.web_max_redirects} times.")


async def _ask(
    client: httpx.AsyncClient, url: httpx.URL, *, context: ToolContext, settings: ToolboxSettings
) -> Body | httpx.URL:
    """Return the body, or where a redirect leads."""
    async with client.stream("GET", url) as response:
        if response.next_request is not None:
            return response.next_request.url
        body = await read_body(response, context, limit=settings.web_max_bytes)
    if response.is_error:
        said = _describe(response)
        excerpt = body.decode()[:_ERROR_EXCERPT] if body.is_text else ""
        raise ToolFailed(f"{said}\n{excerpt}".rstrip())
    return body


def _parse(url: str) -> httpx.URL:
    try:
        return _check(httpx.URL(url.strip()))
    except (httpx.InvalidURL, ValueError):
        raise ToolFailed("This is not a valid web address. Use http://… or https://….") from None


def _check(url: httpx.URL) -> httpx.URL:
    if url.scheme not in {"http", "https"} or not url.host or len(str(url)) > _URL_LENGTH:
        raise ToolFailed("Only http:// and https:// addresses can be fetched.")
    if url.userinfo:
        raise ToolFailed(
            "An address with a user name or password in it is not fetched. Leave them out."
        )
    return url


def _describe(response: httpx.Response) -> str:
    return (
        f"The server answered {response.status_code} {shown(response.reason_phrase)}".rstrip() + "."
    )


def _explain(error: httpx.HTTPError, *, settings: ToolboxSettings) -> str:
    """Return a sentence for the model; the library's own text stays in the log."""
    if isinstance(error, httpx.ConnectTimeout):
        return f"The server did not accept a connection within {settings.web_connect_timeout:g} s."
    if isinstance(error, httpx.TimeoutException):
        return f"The server said nothing for {settings.web_read_timeout:g} s. Try again later."
    if isinstance(error, httpx.ConnectError):
        return "No secure or plain connection to the server could be made. Check the address."
    return "The server broke the connection or gave no valid HTTP answer. Try again later."


def _render(body: Body, context: ToolContext, *, settings: ToolboxSettings, max_chars: int) -> str:
    """Return the text for the model. Runs in a thread: a page takes long to parse."""
    text, title, whole = body.decode(), "", body.is_whole
    if body.is_html:
        page, parsed = read_page(
            text,
            body.url,
            is_cancelled=lambda: context.is_cancelled,
            within=settings.web_parse_timeout,
        )
        text, title, whole = page.text, page.title, whole and parsed
    head = f"{body.url} · {body.media_type or 'no type given'} · {spaced(body.size)} bytes"
    lines = [
        head,
        *([f"Title: {title[:300]}"] if title else []),
        "",
        text[:max_chars] or "(no text)",
    ]
    if len(text) > max_chars:
        lines.append(
            f"… {spaced(len(text) - max_chars)} characters left out; ask with a larger max_chars …"
        )
    if not whole:
        lines.append("… the document is larger than what is read of it …")
    return "\n".join(lines).replace("\0", "\ufffd")
