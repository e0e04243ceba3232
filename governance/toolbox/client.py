"""An HTTP client that connects only to checked addresses.

For every request, including those after redirects, it resolves the host, checks the addresses, and connects to one of
them. A name that resolves to another address later (DNS rebinding) therefore has no effect.
"""

import ssl
from collections.abc import Mapping
from dataclasses import replace

import httpx

from governance.core.exceptions import ToolFailed
from governance.core.excerpts import excerpt
from governance.core.tools import ToolContext
from governance.threads import run_in_thread
from governance.toolbox.addresses import Unreachable, resolve, send_pinned
from governance.toolbox.http_body import HttpBody, read_body
from governance.toolbox.known_hosts import canonical, host_of, refuse_unknown
from governance.toolbox.settings import ToolboxSettings
from governance.toolbox.workspace import shown

_URL_LENGTH = 8000
_LAST_PORT = 65_535
_INVALID = "This is not a valid web address. Use http://… or https://…."
_ERROR_EXCERPT = 500
_ACCEPT = "text/html, application/json, text/*;q=0.9, application/xml;q=0.8, */*;q=0.1"


class ServerRefused(ToolFailed):
    """The server responded with an error status."""

    def __init__(self, sentence: str, *, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Authorities:
    """The trusted certificate authorities, which are loaded from disk once, on first use."""

    def __init__(self) -> None:
        self._tls: ssl.SSLContext | None = None

    async def load(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await run_in_thread(httpx.create_ssl_context)
        return self._tls


class WebClient:
    """An HTTP client that sends requests on behalf of one call.

    `trusted` is the URL of a server that the administrator chose, so its address may be private.
    """

    def __init__(
        self,
        context: ToolContext,
        *,
        settings: ToolboxSettings,
        tls: ssl.SSLContext,
        trusted: str = "",
    ) -> None:
        self._context = context
        self._settings = settings
        self._tls = tls
        self._trusted = _origin(parse(trusted)) if trusted else None

    async def fetch(self, url: httpx.URL, *, headers: Mapping[str, str] | None = None) -> HttpBody:
        """Fetch the URL, follow redirects, and return the body of the response.

        Raises:
            ServerRefused: the server responded with an error status.
            Unreachable: the host does not exist or does not respond, or its response cannot be read.
            ToolFailed: the address is not allowed, there are too many redirects, or the response is not text.
        """
        try:
            async with self._open(headers or {}) as client:
                return await self._follow(client, url)
        except httpx.InvalidURL:
            raise ToolFailed("The address redirects to one that is not a web address.") from None
        except httpx.HTTPError as error:
            raise Unreachable(_explain(error, settings=self._settings)) from error

    def _open(self, headers: Mapping[str, str]) -> httpx.AsyncClient:
        settings = self._settings
        return httpx.AsyncClient(
            transport=CheckedTransport(settings, tls=self._tls, trusted=self._trusted),
            headers={
                "User-Agent": settings.web_user_agent,
                "Accept": _ACCEPT,
                "Accept-Encoding": "gzip",
                **headers,
            },
            timeout=httpx.Timeout(settings.web_read_timeout, connect=settings.web_connect_timeout),
            trust_env=False,
        )

    async def _follow(self, client: httpx.AsyncClient, url: httpx.URL) -> HttpBody:
        settings = self._settings
        requested_host = canonical(host_of(url))
        for _ in range(settings.web_max_redirects + 1):
            if canonical(host_of(url)) != requested_host:
                refuse_unknown(host_of(url), settings)
            self._context.progress(f"Asking {shown(host_of(url))}")
            answer = await self._ask(client, url)
            if isinstance(answer, HttpBody):
                return answer
            url = check(answer)
        raise ToolFailed(f"The address redirects more than {settings.web_max_redirects} times.")

    async def _ask(self, client: httpx.AsyncClient, url: httpx.URL) -> HttpBody | httpx.URL:
        """Request the URL. Return the body of the response, or the target of a redirect."""
        async with client.stream("GET", url) as response:
            if response.next_request is not None:
                return response.next_request.url
            body = await read_body(response, self._context, limit=self._settings.web_max_bytes)
        if response.is_error:
            error_excerpt = excerpt(body.decode(), limit=_ERROR_EXCERPT) if body.is_text else ""
            sentence = f"{_describe(response)}\n{error_excerpt}".rstrip()
            raise ServerRefused(sentence, status=response.status_code)
        return body


class CheckedTransport(httpx.AsyncBaseTransport):
    """A transport that resolves each host itself, and connects only to addresses that it has checked."""

    def __init__(
        self,
        settings: ToolboxSettings,
        *,
        tls: ssl.SSLContext,
        trusted: tuple[str, int] | None = None,
    ) -> None:
        self._settings = settings
        self._trusted = trusted
        # Keep no idle connections, because one could be reused for another host at the same address without a check of
        # that host's certificate.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._transport = httpx.AsyncHTTPTransport(verify=tls, limits=limits, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the first address of its host that accepts a connection."""
        url = request.url
        settings = self._settings
        if _origin(url) == self._trusted:
            settings = replace(settings, web_allow_private=True)
        return await send_pinned(
            request,
            await resolve(*_origin(url), settings=settings),
            self._transport.handle_async_request,
            extensions=request.extensions,
            unreachable=(httpx.ConnectError, httpx.ConnectTimeout),
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()


def parse(url: str) -> httpx.URL:
    """Parse a URL. Raise `ToolFailed` if it is invalid, or if requests to it are not allowed."""
    try:
        return check(httpx.URL(url.strip()))
    except (httpx.InvalidURL, ValueError):
        raise ToolFailed(_INVALID) from None


def check(url: httpx.URL) -> httpx.URL:
    """Return the URL unchanged. Raise `ToolFailed` if requests to it are not allowed."""
    if url.scheme not in {"http", "https"} or not url.host or len(str(url)) > _URL_LENGTH:
        raise ToolFailed("Only http:// and https:// addresses can be fetched.")
    if url.port is not None and url.port > _LAST_PORT:
        raise ToolFailed(_INVALID)
    if url.userinfo:
        raise ToolFailed(
            "An address with a user name or password in it is not fetched. Leave them out."
        )
    return url


def _origin(url: httpx.URL) -> tuple[str, int]:
    return host_of(url), url.port or (443 if url.scheme == "https" else 80)


def _describe(response: httpx.Response) -> str:
    return (
        f"The server answered {response.status_code} {shown(response.reason_phrase)}".rstrip() + "."
    )


def _explain(error: httpx.HTTPError, *, settings: ToolboxSettings) -> str:
    """Return a sentence for the model that does not contain the library's own message."""
    if isinstance(error, httpx.ConnectTimeout):
        return f"The server did not accept a connection within {settings.web_connect_timeout:g} s."
    if isinstance(error, httpx.TimeoutException):
        return f"The server said nothing for {settings.web_read_timeout:g} s. Try again later."
    if isinstance(error, httpx.ConnectError):
        return "No secure or plain connection to the server could be made. Check the address."
    return "The server closed the connection or sent no valid HTTP answer. Try again later."
