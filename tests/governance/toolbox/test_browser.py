"""The browser tool with a real Chromium: pages, the addresses it may reach, supersede, what is left (G1, C9)."""

import asyncio
import contextlib
import gc
import os
import signal
import uuid

import pytest
import pytest_asyncio

from governance import toolbox
from governance.core.calls import CallStatus, ToolCall
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation
from governance.core.exceptions import ToolFailed
from governance.core.executor import ToolExecutor
from governance.core.ports import Host
from tests.governance.core.process_table import tagged
from tests.governance.toolbox.browser_harness import BrowserHarness, browser_tags, page
from tests.governance.toolbox.http_server import HttpServer, answer
from tests.support import PATIENCE, NoApprovals, cancel, eventually

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

FORM = """<!doctype html><title>A form</title><h1>Order</h1>
<form action="/sent"><label>Name <input name="name"></label>
<label>Size <select name="size"><option>small</option><option>large</option></select></label>
<textarea name="why" placeholder="Reason"></textarea><button>Send</button></form>
<p>Twice</p><p>Twice</p><a href="/second">Second page</a><input type="file" aria-label="Picture">"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    made = BrowserHarness(tmp_path_factory.mktemp("workspace"))
    yield made
    await toolbox.aclose(made.registry)


@pytest_asyncio.fixture(loop_scope="module")
async def browser(shared):
    shared.reset()
    yield shared
    await shared.call("close")


@pytest_asyncio.fixture(loop_scope="module")
async def server():
    async with HttpServer().serve() as running:
        running.pages["/"] = page(FORM)
        running.pages["/second"] = page("<title>Second</title><p>Here you are</p>")
        running.pages["/sent"] = page("<title>Sent</title><p>Thank you</p>")
        yield running


def ref_of(said, words):
    (line,) = (line for line in said.splitlines() if words in line)
    return line.partition("[ref=")[2].partition("]")[0]


async def wait_forever(writer):
    """An answer that never comes."""


async def test_a_page_is_opened_and_shown_as_text_with_what_can_be_used(browser, server):
    said = await browser.call("open", url=server.url())
    assert said.splitlines()[0] == f"{server.url()} · A form"
    assert 'heading "Order"' in said
    assert 'textbox "Name"' in said
    assert "/url: /second" in said
    assert browser.reports[-1].message == f"Opening {server.url()}"
    assert said == await browser.call("read")


async def test_what_scripts_make_of_the_page_is_read(browser, server):
    server.pages["/"] = page("<p id=a>before</p><script>a.textContent = 'after ' + 6 * 7</script>")
    assert "after 42" in await browser.call("open", url=server.url())


async def test_fields_are_filled_and_a_form_is_sent_by_ref(browser, server):
    said = await browser.call("open", url=server.url())
    assert ": Ann" in await browser.call("fill", target=ref_of(said, 'textbox "Name"'), text="Ann")
    await browser.call("fill", target=ref_of(said, 'combobox "Size"'), text="large")
    send = ref_of(said, 'button "Send"')
    said = await browser.call("click", target=f"[ref={send}]")
    assert "· Sent" in said
    assert "Thank you" in said
    assert server.requests[-1].split()[1] == "/sent?name=Ann&size=large&why="


async def test_elements_are_found_by_their_exact_names_and_by_selectors(browser, server):
    await browser.call("open", url=server.url())
    await browser.call("fill", target="Reason", text="because\n")
    await browser.call("fill", target="css=input[name=name]", text="Bob\n")
    assert server.requests[-1].split()[1] == "/sent?name=Bob&size=small&why=because%0D%0A"
    await browser.call("open", url=server.url())
    assert "Here you are" in await browser.call("click", target="Second page")


async def test_what_cannot_be_found_or_is_meant_twice_is_a_sentence(browser, server):
    await browser.fails("No page is open", "read")
    await browser.call("open", url=server.url())
    await browser.fails("Nothing on the page is named 'Nowhere'", "click", target="Nowhere")
    await browser.fails("2 elements are named 'Twice'", "click", target="Twice")
    await browser.fails("More than one element", "click", target="css=p")
    await browser.fails("Set `target` to the ref", "click")
    browser.page.set_default_timeout(500)
    await browser.fails("Read the page again", "click", target="e99")
    await browser.fails("could not do that", "click", target="css=:::")
    await browser.fails("could not do that", "fill", target="Picture", text="/etc/passwd")


async def test_a_long_page_is_cut(browser, server):
    server.pages["/"] = page("<p>word</p>" * 2000)
    browser.change(browser_read_limit=500)
    said = await browser.call("open", url=server.url())
    assert len(said) < 700
    assert "characters left out" in said


async def test_screenshots_are_saved_under_free_names_in_the_workspace(browser, server):
    await browser.call("open", url=server.url())
    first = await browser.call("screenshot")
    second = await browser.call("screenshot")
    names = [said.split()[1] for said in (first, second)]
    assert len(set(names)) == 2
    for name in names:
        assert (browser.workspace / name).read_bytes().startswith(b"\x89PNG")


async def test_each_conversation_has_its_own_page_and_cookies(browser, server):
    server.pages["/set"] = page("set", set_cookie="who=ann")
    await browser.call("open", url=server.url("/set"))
    await browser.call("open", url=server.url())
    assert "who=ann" in server.requests[-1]
    other = uuid.uuid4().hex
    await browser.call("open", scope=other, url=server.url())
    assert "who=ann" not in server.requests[-1]
    await browser.call("close", scope=other)
    assert "A form" in await browser.call("read")
    await browser.fails("No page is open", "read", scope=other)


async def test_dialogs_are_dismissed_and_told(browser, server):
    server.pages["/"] = page("<script>alert('Really?'); document.write('went on')</script>")
    said = await browser.call("open", url=server.url())
    assert "dialog, which was dismissed: 'Really?'" in said
    assert "went on" in said


async def test_a_page_cannot_keep_its_visitor(browser, server):
    stay = "onbeforeunload = event => { event.preventDefault(); event.returnValue = 'stay' }"
    server.pages["/"] = page(f"<button>Go</button><script>{stay}</script>")
    await browser.call("open", url=server.url())
    await browser.call("click", target="Go")  # without it, a page is not even asked
    assert "Here you are" in await browser.call("open", url=server.url("/second"))


async def test_a_page_that_goes_on_all_the_time_is_left(browser, server):
    server.pages["/"] = page("<script>setInterval(() => location.reload(), 5)</script>")
    browser.change(browser_action_timeout=2.0)
    with contextlib.suppress(ToolFailed):  # or a moment of it is read
        await browser.call("open", url=server.url())
    browser.change(browser_action_timeout=PATIENCE)
    assert "Here you are" in await browser.call("open", url=server.url("/second"))


async def test_a_page_whose_script_never_ends_is_told_and_another_one_can_be_opened(
    browser, server
):
    browser.change(browser_action_timeout=0.5, browser_settle=0.2)
    server.pages["/"] = page("<script>onload = () => setTimeout(() => { for (;;) {} })</script>")
    await browser.fails("does not respond|did not work in time", "open", url=server.url())
    browser.change(browser_action_timeout=PATIENCE)
    assert "Here you are" in await browser.call("open", url=server.url("/second"))


async def test_a_page_that_is_far_too_long_is_not_read(browser, server):
    title = "document.title = 'x'.repeat(21_000_000)"
    forged = "Object.defineProperty(document, 'title', {value: 'short'})"
    server.pages["/"] = page(f"<title>.</title><script>{title}; {forged}</script>")
    await browser.fails("too long to be read", "open", url=server.url())


@pytest.mark.parametrize(
    "script",
    [
        "document.body.attachShadow({mode: 'open'}).append('x'.repeat(210_000))",
        "document.querySelector('textarea').value = 'x'.repeat(210_000)",
        "document.body.style.setProperty('--long', JSON.stringify('x'.repeat(21_000)));"
        "document.body.append(...Array.from({length: 10}, () => document.createElement('p')))",
    ],
    ids=["shadow", "field", "style"],
)
async def test_what_is_not_in_the_source_of_a_page_counts_too(browser, server, monkeypatch, script):
    monkeypatch.setattr("governance.toolbox.browser_page._LONGEST", 200_000)
    style = "<style>p::after { content: var(--long) }</style>"
    server.pages["/"] = page(f"{style}<textarea></textarea><script>{script}</script>")
    await browser.fails("too long to be read", "open", url=server.url())


async def test_new_windows_are_closed_and_told(browser, server):
    server.pages["/"] = page('<a href="/second" target="_blank">Elsewhere</a>')
    await browser.call("open", url=server.url())
    tab = browser.browsing.find(browser.scope)
    said = [await browser.call("click", target="Elsewhere")]

    async def told():
        said.append(await browser.call("read"))
        return f"new window for {server.url('/second')}" in "".join(said)

    await eventually(told)
    await eventually(lambda: len(tab.page.context.pages) == 1)
    assert "new window" not in await browser.call("read")


async def test_downloads_are_refused(browser, server):
    server.pages["/file"] = answer(
        b"x" * 100, content_type="application/octet-stream", connection="close"
    )
    await browser.fails("download", "open", url=server.url("/file"))


# Addresses


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "chrome://version",
        "view-source:file:///etc/passwd",
        "about:blank",
        "data:text/html,x",
        "javascript:1",
        "http://user:pw@host/",
        "",
    ],
)
async def test_only_addresses_of_the_web_are_opened(browser, url):
    await browser.fails("Only http|valid web address|user name", "open", url=url)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "127.1"],
)
async def test_private_addresses_are_refused_however_they_are_spelled(browser, server, host):
    browser.change(web_allow_private=False)
    await browser.fails("private or local network", "open", url=server.url(host=host))
    assert server.requests == []


class Public:
    """Names of which one is public and leads to our server, and one is private."""

    async def __call__(self, host, port):
        known = {"public.test": "127.0.0.1", "private.test": "10.0.0.1"}
        return [known.get(host, host)]


@pytest.fixture
def public(browser, monkeypatch):
    """Let 127.0.0.1 count as a public host, and everything else on this network as private."""
    monkeypatch.setattr(
        "governance.toolbox.addresses.is_public", lambda address: address == "127.0.0.1"
    )
    browser.change(web_allow_private=False, web_resolve=Public())


@pytest.mark.usefixtures("public")
async def test_a_redirect_to_a_private_address_is_refused(browser, server):
    server.pages["/"] = answer("", status="302 Found", location="http://private.test/")
    await browser.fails(
        "'private.test' is on a private", "open", url=server.url(host="public.test")
    )


@pytest.mark.usefixtures("public")
async def test_a_link_to_a_private_address_is_refused_and_the_page_can_be_left(browser, server):
    server.pages["/"] = page('<a href="http://10.0.0.1/">In</a>')
    await browser.call("open", url=server.url(host="public.test"))
    await browser.fails("'10.0.0.1' is on a private", "click", target="In")
    assert "Second" in await browser.call("open", url=server.url("/second", host="public.test"))


@pytest.mark.usefixtures("public")
async def test_nothing_on_a_page_reaches_a_private_address(browser, server):
    """Pictures, scripts, frames, fetch, WebSockets, WebRTC: all of it takes the one door."""
    packets = []

    class Listener(asyncio.DatagramProtocol):
        def datagram_received(self, data, addr):
            packets.append(data)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Listener, local_addr=("127.0.0.1", 0))
    stun = transport.get_extra_info("sockname")[1]
    server.pages["/"] = page(
        """<img src="http://10.0.0.1/a.png"><script src="http://10.0.0.2/a.js"></script>
        <iframe src="http://10.0.0.3/"></iframe><iframe src="file:///etc/passwd"></iframe>
        <link rel="prefetch" href="http://10.0.0.4/"><p id="p"></p>
        <script>
        const done = what => { p.textContent += what + " " };
        const tries = [
          fetch("http://10.0.0.5/").catch(() => done("fetch")),
          fetch("file:///etc/passwd").catch(() => done("file")),
          new Promise(go => { const s = new WebSocket("ws://10.0.0.6/"); s.onerror = () => go(done("socket")) }),
          new Promise(go => {
            const peer = new RTCPeerConnection({iceServers: [{urls: "stun:127.0.0.1:STUN"}]});
            peer.onicecandidate = e => { if (!e.candidate) go(done("gathered")) };
            peer.createDataChannel("x"); peer.createOffer().then(o => peer.setLocalDescription(o));
          }),
        ];
        Promise.all(tries).then(() => done("all"));
        </script>""".replace("STUN", str(stun))
    )
    browser.change(browser_action_timeout=4.0)  # a frame that is refused is waited for that long
    try:
        said = await browser.call("open", url=server.url(host="public.test"))
        refused = set()

        async def settled():
            nonlocal said
            refused.update(line for line in said.splitlines() if line.startswith("Not loaded"))
            if "all" in said.split():
                return True
            said = await browser.call("read")
            return False

        await eventually(settled, timeout=PATIENCE)
        for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.6"):
            assert any(f"'{host}' is on a private" in line for line in refused), host
        assert "root:" not in said
        assert packets == []
        assert [request.split()[1] for request in server.requests if "favicon" not in request] == [
            "/"
        ]
    finally:
        transport.close()


async def test_a_page_reaches_no_host_that_was_not_opened_where_people_are_asked(browser, server):
    async with HttpServer().serve() as elsewhere:
        carried = elsewhere.url("/carried?away", host="localhost")
        server.pages["/"] = page(f'<img src="{carried}"><a href="{carried}">Out</a>')
        elsewhere.pages["/carried"] = page("arrived")
        browser.change(web_ask_hosts=True)
        assert "'localhost', which was not approved" in await browser.call("open", url=server.url())
        await browser.fails("not approved", "click", target="Out")
        assert elsewhere.requests == []
        assert "arrived" in await browser.call("open", url=carried)

        browser.change(web_known_hosts=("localhost",))
        await browser.call("close")
        await browser.call("open", url=server.url())
        assert any("/carried?away" in request for request in elsewhere.requests[1:])


WAYS_OUT = """<base href="THERE"><img src="/img"><iframe src="/frame"></iframe><object data="/object"></object>
<link rel="prefetch" href="/prefetch"><link rel="preconnect" href="THERE"><link rel="stylesheet" href="/style">
<link rel="manifest" href="/manifest"><video src="/video"></video><a id="a" href="HERE/b" ping="/ping">next</a>
<form id="f" action="/form" method="post" target="g"></form><iframe name="g"></iframe><p id="p"></p>
<script>
const there = "THERE", tried = what => { p.textContent += what + " " };
navigator.sendBeacon(there + "beacon", "secret");
new EventSource(there + "events"); new Worker(URL.createObjectURL(new Blob([`fetch("${there}worker")`])));
window.open(there + "window"); f.submit();
Promise.allSettled([
  fetch(there + "fetch", {mode: "no-cors", keepalive: true}),
  import(there + "module"),
  navigator.serviceWorker.register("HERE/worker.js"),
  new Promise(go => { const s = new WebSocket(there.replace("http", "ws") + "socket"); s.onclose = s.onerror = go }),
  new Promise(go => { try { new WebTransport(there.replace("http", "https")).ready.then(go, go) } catch { go() } }),
]).then(() => tried("all"));
</script>"""


async def test_no_way_out_of_a_page_leads_to_a_host_that_was_not_opened(browser, server):
    async with HttpServer().serve() as elsewhere:
        here, there = server.url("").rstrip("/"), elsewhere.url("/", host="localhost")
        server.pages["/"] = page(WAYS_OUT.replace("THERE", there).replace("HERE", here))
        server.pages["/worker.js"] = answer(
            f"fetch('{there}service')", content_type="text/javascript", connection="close"
        )
        server.pages["/b"] = page("second")
        server.pages["/refresh"] = page(f'<meta http-equiv="refresh" content="0;url={there}meta">')
        server.pages["/away"] = answer("", status="302 Found", location=f"{there}redirect")
        browser.change(web_ask_hosts=True)
        said = await browser.call("open", url=server.url())

        async def tried():
            return "all" in (await browser.call("read")).split()

        assert "'localhost', which was not approved" in said
        await eventually(tried, timeout=PATIENCE)
        assert "second" in await browser.call("click", target="next")
        await browser.fails("not approved", "open", url=server.url("/away"))
        for _ in range(2):  # it is led away while it is read, or just after
            with contextlib.suppress(ToolFailed):
                await browser.call("open", url=server.url("/refresh"))
        assert elsewhere.requests == []

        browser.change(web_known_hosts=("localhost",))
        await browser.call("open", url=server.url())
        ways = {"img", "frame", "object", "style", "beacon", "events", "worker", "fetch", "socket"}

        async def taken():
            return ways <= {request.split()[1].strip("/") for request in elsewhere.requests}

        await eventually(taken, timeout=PATIENCE)


async def test_a_page_cannot_go_to_the_files_of_the_server(browser, server):
    server.pages["/"] = page('<a href="file:///etc/passwd">In</a>')
    server.pages["/r"] = answer("", status="302 Found", location="file:///etc/passwd")
    await browser.call("open", url=server.url())
    assert "root:" not in await browser.call("click", target="In")
    assert browser.page.url == server.url()
    await browser.fails("could not be loaded", "open", url=server.url("/r"))


async def test_a_host_that_does_not_answer_is_a_sentence(browser, server):
    async with HttpServer().serve() as gone:
        url = gone.url()
    await browser.fails("No connection to the host '127.0.0.1'", "open", url=url)
    await browser.fails("could not be found", "open", url="http://no-such-host.invalid/")


async def test_what_is_no_proxy_request_is_cut_off(browser, server):
    await browser.call("open", url=server.url())
    port = browser.browsing.find(browser.scope).proxy._server.sockets[0].getsockname()[1]
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x05\x01\x00\x05\x02\x00\x01", b"\x05"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        writer.write_eof()
        assert len(await reader.read()) <= 2
        writer.close()
        await writer.wait_closed()


async def ask_gateway(browser, request):
    port = browser.browsing.find(browser.scope).proxy._server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x05\x01\x00" + request)
    writer.write_eof()
    said = await reader.read()
    writer.close()
    await writer.wait_closed()
    return said


async def test_the_gateway_checks_numbers_as_it_checks_names(browser, server):
    await browser.call("open", url=server.url())
    port = server.port.to_bytes(2, "big")
    asking = b"GET /second HTTP/1.0\r\n\r\n"
    said = await ask_gateway(browser, b"\x05\x01\x00\x01\x7f\x00\x00\x01" + port + asking)
    assert said.startswith(b"\x05\x00\x05\x00")
    assert b"Here you are" in said
    browser.change(web_allow_private=False)
    for address in (b"\x01\x7f\x00\x00\x01", b"\x04" + bytes(15) + b"\x01"):
        said = await ask_gateway(browser, b"\x05\x01\x00" + address + port + asking)
        assert said[:4] == b"\x05\x00\x05\x02"


# Limits, cancel, supersede


@pytest_asyncio.fixture(loop_scope="module")
async def executor(browser):
    made = ToolExecutor(registry=browser.registry, policies=NoApprovals())
    yield made
    await made.aclose()


def start(browser, executor, call_id, **arguments):
    call = ToolCall(id=call_id, tool_name="browser", scope=browser.scope, input=arguments)
    live = executor.prepare(call)
    host = Host(workspace=browser.workspace)
    return live, asyncio.create_task(executor.execute(live, host=host))


async def test_a_newer_call_takes_the_place_of_the_earlier_one(browser, server, executor):
    server.pages["/slow"] = wait_forever
    first, running = start(browser, executor, "1", action="open", url=server.url("/slow"))
    await eventually(lambda: any("/slow" in request for request in server.requests))
    _, newer = start(browser, executor, "2", action="open", url=server.url("/second"))
    outcome = await running
    assert outcome.status is CallStatus.CANCELLED
    assert first.ended_by.reason is CancelReason.SUPERSEDED
    assert "a newer call of the same tool" in outcome.result
    outcome = await newer
    assert outcome.status is CallStatus.SUCCEEDED
    assert "Here you are" in outcome.result
    async with asyncio.timeout(PATIENCE):
        await server.closed.wait()


async def test_cancel_closes_the_page_and_its_connections(browser, server, executor):
    server.pages["/slow"] = wait_forever
    live, running = start(browser, executor, "1", action="open", url=server.url("/slow"))
    await eventually(lambda: any("/slow" in request for request in server.requests))
    live.cancel(Cancellation(reason=CancelReason.USER))
    outcome = await running
    assert outcome.status is CallStatus.CANCELLED
    async with asyncio.timeout(PATIENCE):
        await server.closed.wait()
    assert browser.browsing.find(browser.scope) is None
    await browser.fails("No page is open", "read")


async def test_timeout_closes_a_page_whose_script_never_ends(browser, server, executor):
    server.pages["/"] = page('<button onclick="for (;;) {}">Hang</button>')
    await browser.call("open", url=server.url())
    context = browser.page.context
    closed = asyncio.Event()
    context.on("close", lambda _: closed.set())
    _, running = start(
        browser, executor, "1", action="click", target="Hang", _meta={"timeout_ms": 500}
    )
    outcome = await running
    assert outcome.status is CallStatus.TIMED_OUT
    async with asyncio.timeout(PATIENCE):
        await closed.wait()
    assert browser.browsing.find(browser.scope) is None


async def test_cancel_while_a_page_is_asked_whether_it_responds_logs_nothing(
    browser, server, caplog
):
    browser.change(browser_action_timeout=0.5, browser_settle=0.2)
    server.pages["/"] = page("<script>onload = () => setTimeout(() => { for (;;) {} })</script>")
    await browser.fails("does not respond|did not work in time", "open", url=server.url())
    browser.change(browser_settle=PATIENCE)

    def is_asked():
        return any(task.get_coro().__name__ == "evaluate" for task in asyncio.all_tasks())

    task = asyncio.create_task(browser.call("open", url=server.url("/second")))
    await eventually(is_asked)
    await cancel(task)
    await eventually(lambda: not is_asked())
    del task
    gc.collect()  # asyncio logs an exception that nobody has retrieved when it is forgotten
    assert "exception was never retrieved" not in caplog.text


async def test_cancel_while_the_page_is_being_opened_leaves_none(browser, server):
    await browser.call("open", scope="warm", url=server.url())  # the browser runs
    pages = browser.browsing._browser.result()
    before = len(pages.contexts)
    task = asyncio.create_task(browser.call("open", url=server.url("/second")))
    await eventually(lambda: browser.browsing._opening)
    await cancel(task)
    await eventually(lambda: len(pages.contexts) == before)
    assert browser.browsing.find(browser.scope) is None
    await browser.call("close", scope="warm")


async def test_an_idle_page_is_closed(browser, server):
    await browser.call("open", url=server.url())
    browser.change(browser_idle=0.2)
    await browser.call("read")
    await eventually(lambda: browser.browsing.find(browser.scope) is None)


async def test_too_many_pages_close_the_one_used_longest_ago_but_none_in_use(browser, server):
    browser.change(browser_max_pages=2)
    scopes = [uuid.uuid4().hex for _ in range(3)]
    for scope in scopes:
        await browser.call("open", scope=scope, url=server.url())
    assert [browser.browsing.find(scope) is not None for scope in scopes] == [False, True, True]
    server.pages["/slow"] = wait_forever
    busy = [
        asyncio.create_task(browser.call("open", scope=scope, url=server.url("/slow")))
        for scope in scopes[1:]
    ]
    await eventually(lambda: sum("/slow" in request for request in server.requests) == 2)
    await browser.fails("all are in use", "open", url=server.url())
    for task in busy:
        task.cancel()
    await asyncio.wait(busy)


async def test_a_browser_that_dies_is_told_and_the_next_page_gets_a_new_one(browser, server):
    await browser.call("open", url=server.url())
    server.pages["/slow"] = wait_forever
    running = asyncio.create_task(browser.call("open", url=server.url("/slow")))
    await eventually(lambda: any("/slow" in request for request in server.requests))
    for pid in [pid for tag in browser_tags() for pid in tagged(tag)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with pytest.raises(ToolFailed, match="closed or has crashed"):
        await running
    await eventually(lambda: browser.browsing._browser is None)
    assert "A form" in await browser.call("open", url=server.url())
