"""Which pages may open a socket: this site's, by scheme, host and port, also behind a proxy with TLS."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from channels.testing import WebsocketCommunicator
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.e2e.site import Site
from tests.support import LONG_PATIENCE, PATIENCE
from tests.tcp_server import TcpServer
from webchat.routing import SiteOriginValidator

FORWARDED = ("HTTP_X_FORWARDED_PROTO", "https")


async def accept(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})


async def is_let_in(
    origin: str | None, *, host: str = "", scheme: str = "", proto: str = ""
) -> bool:
    """Open a socket from a page, and return whether it was accepted."""
    given = {"host": host, "x-forwarded-proto": proto}
    headers = [(name.encode(), value.encode()) for name, value in given.items() if value]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    wire = WebsocketCommunicator(SiteOriginValidator(accept), "/ws/", headers=headers)
    if scheme:
        wire.scope["scheme"] = scheme
    wire.scope["server"] = ("127.0.0.1", 8000)
    accepted, _ = await wire.connect(timeout=LONG_PATIENCE)
    return accepted


@pytest.fixture(autouse=True)
def site_settings(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["chat.example.org", "127.0.0.1", "[::1]", ".many.example.org"]
    settings.CSRF_TRUSTED_ORIGINS = [
        "https://trusted.example.org",
        "https://*.wide.example.org:8443",
    ]


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://chat.example.org", "chat.example.org"),
        ("http://chat.example.org", "chat.example.org:80"),
        ("http://chat.example.org:80", "chat.example.org"),
        ("http://chat.example.org", "Chat.Example.ORG"),
        ("http://a.many.example.org", "a.many.example.org"),
        ("https://trusted.example.org", "chat.example.org"),
        ("https://trusted.example.org:443", "chat.example.org"),
        ("https://a.wide.example.org:8443", "chat.example.org"),
    ],
)
async def test_a_page_of_this_site_may_open_a_socket(origin: str, host: str):
    assert await is_let_in(origin, host=host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:9999", "127.0.0.1:8000"),  # another service of the same machine
        ("https://127.0.0.1:8000", "127.0.0.1:8000"),
        ("https://127.0.0.1", "127.0.0.1:8000"),
        ("http://127.0.0.1", "127.0.0.1:8000"),
        ("https://chat.example.org", "chat.example.org"),
        ("http://chat.example.org:443", "chat.example.org"),
        ("http://b.many.example.org", "a.many.example.org"),
        ("http://127.0.0.1:8000", "chat.example.org"),
        ("http://evil.example", "evil.example"),  # no name of this site
        ("http://trusted.example.org", "chat.example.org"),
        ("http://trusted.example.org:443", "chat.example.org"),
        ("https://trusted.example.org:8443", "chat.example.org"),
        ("https://a.wide.example.org", "chat.example.org"),
        ("http://a.wide.example.org:8443", "chat.example.org"),
        ("https://evil-wide.example.org:8443", "chat.example.org"),
        ("http://chat.example.org@evil.example", "chat.example.org"),
        ("ftp://chat.example.org", "chat.example.org"),
        ("http://chat.example.org:x", "chat.example.org"),
        ("http://[chat.example.org", "chat.example.org"),
        ("chat.example.org", "chat.example.org"),
        ("null", "chat.example.org"),
        ("", "chat.example.org"),
        (None, "chat.example.org"),
    ],
)
async def test_a_page_of_another_site_may_not(origin: str | None, host: str):
    assert not await is_let_in(origin, host=host)


async def test_an_address_that_is_no_text_changes_nothing():
    headers = [(b"host", b"chat.example.org"), (b"origin", b"http://chat.example.org")]
    wire = WebsocketCommunicator(SiteOriginValidator(accept), "/ws/", headers=headers)
    wire.scope["query_string"] = b"\xff"
    assert (await wire.connect(timeout=PATIENCE))[0]


@pytest.mark.parametrize(
    ("how", "scheme"),
    [
        ({"scheme": "wss"}, "https"),
        ({"scheme": "ws"}, "http"),
        ({"proto": "https"}, "http"),  # said by nobody whom the site believes
    ],
)
async def test_the_scheme_is_the_servers_where_no_proxy_is_believed(how: Any, scheme: str):
    for candidate in ("http", "https"):
        let_in = await is_let_in(f"{candidate}://chat.example.org", host="chat.example.org", **how)
        assert let_in == (candidate == scheme)


@pytest.mark.parametrize(
    ("how", "scheme"),
    [
        ({"proto": "https"}, "https"),
        ({"proto": "wss"}, "https"),
        ({"proto": "ws"}, "http"),
        ({"proto": "http", "scheme": "wss"}, "http"),
        ({"scheme": "wss"}, "https"),
        ({}, "http"),
    ],
)
async def test_behind_a_proxy_the_scheme_is_what_it_says(how: Any, scheme: str, settings: Any):
    settings.SECURE_PROXY_SSL_HEADER = FORWARDED
    for candidate in ("http", "https"):
        let_in = await is_let_in(f"{candidate}://chat.example.org", host="chat.example.org", **how)
        assert let_in == (candidate == scheme)


class TlsProxy(TcpServer):
    """Speaks TLS with browsers and plain HTTP with the site; says so in the first request of each connection."""

    def __init__(self, site: Site, directory: Path) -> None:
        super().__init__()
        self.site = site
        self._certificate = directory / "certificate.pem"
        _make_certificate(self._certificate)
        self.trust = ssl.create_default_context(cafile=str(self._certificate))

    async def __aenter__(self) -> Self:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate)
        await self.listen(ssl=context)
        return self

    async def _talk(self, user_client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await user_client.readuntil(b"\r\n")
            answers, site = await asyncio.open_connection("127.0.0.1", self.site.port)
            try:
                site.write(head + b"X-Forwarded-Proto: https\r\n")
                await asyncio.gather(_pipe(user_client, site), _pipe(answers, back))
            finally:
                site.close()


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


def _make_certificate(file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[TlsProxy]:
    site = Site(tmp_path, HTTPS="true", BEHIND_PROXY="true")
    try:
        await asyncio.to_thread(site.start)
        async with TlsProxy(site, tmp_path) as made:
            yield made
    finally:
        await asyncio.to_thread(site.leave)


async def conversation_of(proxy: TlsProxy) -> tuple[str, str]:
    """Sign in through the proxy; return a conversation's id and the cookie."""
    url = f"https://{proxy.address}"
    async with httpx.AsyncClient(
        base_url=url,
        verify=proxy.trust,
        trust_env=False,
        timeout=LONG_PATIENCE,
        headers={"Referer": url},
        limits=httpx.Limits(max_keepalive_connections=0),
    ) as user_client:
        form = re.search(
            r'name="csrfmiddlewaretoken" value="([^"]+)"', (await user_client.get("/login/")).text
        )
        assert form
        fields = {
            "username": "demo",
            "password": proxy.site.password("demo"),
            "csrfmiddlewaretoken": form[1],
        }
        assert (await user_client.post("/login/", data=fields)).status_code == 302
        headers = {"X-CSRFToken": user_client.cookies["csrftoken"]}
        made = await user_client.post("/api/conversations", json={}, headers=headers)
        return made.json()["conversation_id"], f"sessionid={user_client.cookies['sessionid']}"


async def test_behind_a_proxy_that_speaks_tls_its_own_pages_open_sockets_and_no_others(
    proxy: TlsProxy,
):
    conversation, cookie = await conversation_of(proxy)

    async def greet(origin: str) -> str:
        async with connect(
            f"wss://{proxy.address}/ws/conversations/{conversation}/",
            ssl=proxy.trust,
            origin=origin,
            additional_headers={"Cookie": cookie},
            open_timeout=LONG_PATIENCE,
            proxy=None,
        ) as socket:
            await socket.send('{"type": "hello", "protocol": 1}')
            return await socket.recv(decode=True)

    assert '"welcome"' in await greet(f"https://{proxy.address}")
    for origin in (
        f"http://{proxy.address}",
        "https://127.0.0.1",
        f"https://127.0.0.1:{proxy.site.port}",
    ):
        with pytest.raises(InvalidStatus, match="403"):
            await greet(origin)
