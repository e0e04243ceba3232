"""Fetching from the web: what is returned, and what is refused (G1)."""

import asyncio
import datetime
import gzip
import socket
import ssl
import threading
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from governance.core.exceptions import ToolFailed
from governance.toolbox import addresses
from governance.toolbox.addresses import Unreachable, is_public
from governance.toolbox.known_hosts import unknown_host_of
from tests.governance.toolbox.http_server import HttpServer, answer
from tests.support import PATIENCE, cancel, eventually


@pytest.fixture
async def server():
    async with HttpServer().serve() as running:
        yield running


class Names:
    """A resolver that knows these names, and remembers what it was asked."""

    def __init__(self, **addresses):
        self._addresses = {f"{name}.test": found for name, found in addresses.items()}
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host, port):
        self.asked.append((host, port))
        if host not in self._addresses:
            raise OSError("no such name")
        return self._addresses[host]


async def refused(harness, url, match):
    with pytest.raises(ToolFailed, match=match) as caught:
        await harness.call("web_fetch", url=url)
    return str(caught.value)


async def test_text_is_returned_as_it_is(harness, server):
    server.pages["/a.json"] = answer('{"é": 1}', content_type="application/json; charset=utf-8")
    text = await harness.call("web_fetch", url=server.url("/a.json"))
    assert text == f'{server.url("/a.json")} · application/json · 9 bytes\n\n{{"é": 1}}'
    assert "user-agent: django-turnkeeper" in server.requests[0].lower()


async def test_page_is_made_readable(harness, server):
    server.pages["/"] = answer(
        """<!doctype html><html><head><title> The
        title </title><style>p { color: red }</style><script>alert(1)</script></head><body>
        <h1>Head&amp;line</h1><p>One   <b>bold</b> word<br>next line</p>
        <ul><li>first<li><a href="/second">second</a></ul>
        <pre>  keep
   this</pre><svg><title>no</title></svg><a href="javascript:x()">script</a></body></html>""",
        content_type="text/html",
    )
    text = await harness.call("web_fetch", url=server.url())
    _, title, body = text.split("\n", 2)
    assert title == "Title: The title"
    assert body.strip() == (
        "# Head&line\n\nOne bold word\nnext line\n\n- first\n- "
        f"[second]({server.url('/second')})\n\n  keep\n   this\n\nscript"
    )


async def test_long_text_is_cut_and_says_so(harness, server):
    server.pages["/"] = answer("x" * 5000)
    text = await harness.call("web_fetch", url=server.url(), max_chars=1000)
    assert "x" * 1000 + "\n… 4 000 characters left out" in text


@pytest.mark.parametrize("compressed", [False, True])
async def test_large_body_is_read_up_to_the_limit_of_unfolded_bytes(harness, server, compressed):
    harness.change(web_max_bytes=100_000)
    body = b"x" * 20_000_000
    server.pages["/"] = (
        answer(gzip.compress(body), content_encoding="gzip") if compressed else answer(body)
    )
    text = await harness.call("web_fetch", url=server.url(), max_chars=1000)
    assert "· 100 000 bytes" in text
    assert "larger than what is read" in text


async def test_nothing_is_read_behind_compressed_bytes(harness, server):
    """zlib keeps what follows their end, and copies all of it with each further piece."""
    sent = 0

    async def go_on(writer):
        nonlocal sent
        writer.write(answer(gzip.compress(b"all"), content_encoding="gzip", content_length=None))
        while sent < 400:
            writer.write(bytes(65_536))
            await writer.drain()
            sent += 1
        writer.close()

    server.pages["/"] = go_on
    assert (await harness.call("web_fetch", url=server.url())).endswith("3 bytes\n\nall")
    await asyncio.wait_for(server.closed.wait(), PATIENCE)
    assert sent < 400


async def test_broken_compression_is_a_sentence(harness, server):
    server.pages["/"] = answer(b"no gzip at all", content_encoding="gzip")
    await refused(harness, server.url(), "cannot be decompressed")
    server.pages["/"] = answer(b"xx", content_encoding="br")
    await refused(harness, server.url(), "'br'")


@pytest.mark.parametrize(
    ("content", "content_type"),
    [(b"%PDF", "application/pdf"), (b"\x89PNG", "image/png"), (b"a\0b", None)],
)
async def test_binary_documents_are_refused(harness, server, content, content_type):
    server.pages["/"] = answer(content, content_type=content_type)
    await refused(harness, server.url(), "not shown")


async def test_character_sets_come_from_the_header_then_the_page(harness, server):
    server.pages["/h"] = answer(
        "né".encode("latin-1"), content_type="text/plain; charset=ISO-8859-1"
    )
    server.pages["/m"] = answer(
        '<meta charset="windows-1252"><p>€</p>'.encode("cp1252"), content_type="text/html"
    )
    server.pages["/x"] = answer("né".encode(), content_type="text/plain; charset=unicode_escape")
    for path, expected in (("/h", "né"), ("/m", "€"), ("/x", "né")):
        assert (await harness.call("web_fetch", url=server.url(path))).endswith(expected)


async def test_error_status_is_an_error_with_the_begin_of_what_was_said(harness, server):
    text = await refused(harness, server.url("/missing"), "404 Not Found")
    assert text == "The server answered 404 Not Found.\nno such page"


async def test_redirects_are_followed_up_to_the_limit(harness, server):
    for number in range(7):
        server.pages[f"/{number}"] = answer(status="302 Found", location=f"/{number + 1}")
    server.pages["/7"] = answer("arrived")
    text = await harness.call("web_fetch", url=server.url("/2"))
    assert text.startswith(server.url("/7"))
    assert text.endswith("arrived")
    await refused(harness, server.url("/1"), "redirects more than 5 times")


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "http://u:p@127.0.0.1/",
        "http://[bad/",
        "http://127.0.0.1:99999/",
        "javascript:alert(1)",
    ],
)
async def test_redirects_are_checked_like_the_first_address(harness, server, location):
    server.pages["/"] = answer(status="301 Moved", location=location)
    await refused(harness, server.url(), "http|password|found|not a web address")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://x/",
        "/etc/passwd",
        "http://",
        "http://u:p@x.test/",
        "http://[x",
        "http://127.0.0.1:65536/",
    ],
)
async def test_other_addresses_are_refused(harness, url):
    await refused(harness, url, "http|password|found")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "0.0.0.0",
        "0",
        "localhost",
        "localhost.",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "①②⑦.⓪.⓪.①",
        "169.254.169.254",
    ],
)
async def test_no_spelling_of_a_local_address_is_fetched(harness, server, host):
    harness.change(web_allow_private=False)
    server.pages["/"] = answer("inside")
    text = await refused(
        harness, server.url(host=host), "private or local|could not be found|valid"
    )
    assert "inside" not in text
    assert server.requests == []


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "172.31.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.1.1",
        "192.0.0.8",
        "198.18.0.1",
        "203.0.113.5",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "168.63.129.16",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "fec0::1",
        "::7f00:1",
        "2002:7f00:1::",
        "2001::1",
        "2001:db8::1",
        "64:ff9b:1::1",
        "::ffff:8.8.8.8",
        "nonsense",
    ],
)
def test_addresses_that_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "2a00:1450:4001::200e"]
)
def test_addresses_that_are_public(address):
    assert is_public(address)


async def test_name_with_a_single_private_address_is_refused(harness, server):
    resolve = Names(mixed=["93.184.216.34", "127.0.0.1"])
    harness.change(web_allow_private=False, web_resolve=resolve)
    await refused(harness, server.url(host="mixed.test"), "private or local")
    assert server.requests == []


async def test_address_that_was_checked_is_the_one_connected_to(harness, server):
    """DNS rebinding: a second look at the name would give another address."""
    resolve = Names(rebound=["127.0.0.1"])
    harness.change(web_resolve=resolve)
    server.pages["/"] = answer("here")
    text = await harness.call("web_fetch", url=server.url(host="rebound.test"))
    assert text.startswith(f"http://rebound.test:{server.port}/ ·")
    assert resolve.asked == [("rebound.test", server.port)]
    assert f"host: rebound.test:{server.port}" in server.requests[0].lower()


async def test_host_that_is_asked_about_is_the_one_looked_up(harness, server):
    """Python's own way to write ß in a name is an older one: it leads to another host."""
    harness.change(web_ask_hosts=True, web_known_hosts=())
    resolve = Names(**{"xn--strae-oqa": ["127.0.0.1"]})
    harness.change(web_resolve=resolve)
    server.pages["/"] = answer("here")
    url = server.url(host="straße.test")
    question = unknown_host_of(lambda: harness.settings)({"url": url})
    assert (await harness.call("web_fetch", url=url)).endswith("here")
    assert resolve.asked == [(question, server.port)]
    assert harness.reports[0].message == f"Asking {question}"


async def test_redirect_to_a_private_address_is_refused(harness, server, monkeypatch):
    # The server's own address counts as public here, so that the first request gets through.
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")
    resolve = Names(public=["127.0.0.1"], inside=["127.0.0.2"])
    harness.change(web_allow_private=False, web_resolve=resolve)
    server.pages["/"] = answer(
        status="307 Temporary Redirect", location=server.url("/inside", host="inside.test")
    )
    await refused(harness, server.url(host="public.test"), "private or local")
    assert len(server.requests) == 1
    assert [host for host, _ in resolve.asked] == ["public.test", "inside.test"]


async def test_next_address_is_tried_where_one_does_not_answer(harness, server):
    harness.change(web_resolve=Names(two=["127.0.0.2", "127.0.0.1"]))
    server.pages["/"] = answer("here")
    assert (await harness.call("web_fetch", url=server.url(host="two.test"))).endswith("here")


async def test_unknown_host_and_closed_port_are_sentences(harness, server):
    harness.change(web_resolve=Names(closed=["127.0.0.3"]))
    await refused(harness, "http://unknown.test/", "could not be found")
    await refused(harness, server.url(host="closed.test"), "connection")


async def test_names_that_are_looked_up_for_ever_hold_up_nothing_else(harness, monkeypatch):
    """Nothing ends a lookup, so its thread is busy for as long as a name server is silent."""
    released, blocked = threading.Event(), threading.Event()

    def look_up(*_args, **_named):
        blocked.set()
        released.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    harness.change(web_connect_timeout=PATIENCE)
    lookups = [
        asyncio.create_task(addresses.resolve(f"{number}.test", 80, settings=harness.settings))
        for number in range(64)
    ]
    try:
        await eventually(blocked.is_set)
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.to_thread(lambda: "done") == "done"
    finally:
        released.set()
        found = await asyncio.gather(*lookups, return_exceptions=True)
    assert {type(problem) for problem in found} == {Unreachable}


async def test_proxies_of_the_environment_are_not_used(harness, server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server.pages["/"] = answer("direct")
    assert (await harness.call("web_fetch", url=server.url())).endswith("direct")


async def test_silent_server_is_left_after_the_read_timeout(harness, server):
    async def say_nothing(_writer):
        pass

    harness.change(web_read_timeout=0.05)
    server.pages["/"] = say_nothing
    await refused(harness, server.url(), "said nothing for 0.05 s")
    await asyncio.wait_for(server.closed.wait(), PATIENCE)


async def test_cancel_closes_the_connection_to_a_slow_server(harness, server):
    async def dribble(writer):
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\nbegin"
        )
        await writer.drain()

    server.pages["/"] = dribble
    task = asyncio.create_task(harness.call("web_fetch", url=server.url()))
    await harness.until(lambda: any(report.progress for report in harness.reports))
    assert harness.reports[-1].total == 1000
    assert not server.closed.is_set()
    await cancel(task)
    await asyncio.wait_for(server.closed.wait(), PATIENCE)


async def test_broken_answers_are_sentences(harness, server):
    server.pages["/"] = b"garbage\r\n\r\n"
    await refused(harness, server.url(), "no valid HTTP answer")
    server.pages["/"] = answer("short", content_length=100)
    await refused(harness, server.url(), "no valid HTTP answer")


async def test_hostile_page_is_given_up_after_the_parse_timeout(harness, server):
    harness.change(web_parse_timeout=0.05)
    server.pages["/"] = answer("<p>begin</p>" + "<p>word</p>" * 150_000, content_type="text/html")
    text = await harness.call("web_fetch", url=server.url())
    assert "begin" in text
    assert "larger than what is read of it" in text


async def test_remarks_without_end_keep_no_thread_busy(harness, server):
    harness.change(web_parse_timeout=5.0)
    server.pages["/"] = answer("<p>begin</p>" + "<!--" * 400_000, content_type="text/html")
    begun = time.process_time()
    text = await harness.call("web_fetch", url=server.url())
    assert "begin" in text
    assert time.process_time() - begun < 10.0


def make_certificate(name, directory):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "certificate.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.parametrize(
    ("host", "name"), [("secure.test", "secure"), ("straße.test", "xn--strae-oqa")]
)
async def test_certificate_is_checked_against_the_name_not_the_address(
    harness, tmp_path, monkeypatch, host, name
):
    path = make_certificate(f"{name}.test", tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    harness.change(web_resolve=Names(**{name: ["127.0.0.1"]}, other=["127.0.0.1"]))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    server = HttpServer()
    server.pages["/"] = answer("sealed")
    async with server.serve(ssl=tls):
        text = await harness.call("web_fetch", url=f"https://{host}:{server.port}/")
        assert text.endswith("sealed")
        await refused(harness, f"https://other.test:{server.port}/", "connection")
    assert len(server.requests) == 1


def test_it_declares_how_it_is_governed(harness):
    tool = harness.registry.get("web_fetch")
    assert tool.limits.timeout == 60
    assert not tool.side_effects
    assert tool.isolation != "thread"
