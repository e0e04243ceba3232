"""Images of plain tools: shown from their threads, within the limits of their call."""

import asyncio
import threading
from collections import defaultdict

import pytest

from governance import (
    CallStatus,
    Disposition,
    Host,
    ImageRefused,
    Isolation,
    ResultImage,
    Timing,
    ToolCall,
    ToolContext,
    ToolExecutor,
    ToolRegistry,
    make_tool,
)
from governance.core.images import MOST_IMAGES
from governance.core.invokers.thread import ThreadInvoker
from tests.governance.core.support import BY_USER
from tests.support import PATIENCE, eventually

LINE = "[image drawing: image/png, 4 × 3 pixels]"


class Album:
    """A host's place for images; it refuses what is not called PNG, and holds what it is told to hold."""

    def __init__(self):
        self.kept = []
        self.asked = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def keep(self, content, *, name):
        self.asked += 1
        await self.may_go_on.wait()
        if content == b"broken disk":
            raise OSError("secret path")
        if not content.startswith(b"PNG"):
            raise ImageRefused("It is no image.")
        self.kept.append(content)
        return ResultImage(
            id=str(len(self.kept)),
            name=name,
            media_type="image/png",
            size=len(content),
            width=4,
            height=3,
        )


@pytest.fixture
async def album():
    return Album()


class Threads:
    """An executor of plain tools; a tool passes a gate once the test has opened it."""

    def __init__(self, album, *functions, grace=PATIENCE):
        self.registry = ToolRegistry({each.__name__: make_tool(each) for each in functions})
        self.invoker = ThreadInvoker(max_threads=4, max_abandoned=4)
        self.executor = ToolExecutor(
            registry=self.registry,
            invokers={Isolation.THREAD: self.invoker},
            timing=Timing(cancel_grace=grace),
        )
        self.album = album

    def start(self, name, *, keeps=True):
        live = self.executor.prepare(ToolCall(id=name, tool_name=name))
        host = Host(keep_image=self.album.keep if keeps else None)
        return live, asyncio.create_task(self.executor.execute(live, host=host))

    async def run(self, name, *, keeps=True):
        return await self.start(name, keeps=keeps)[1]


@pytest.fixture
def gates():
    made = defaultdict(threading.Event)
    yield made
    for gate in made.values():
        gate.set()


def draw(context: ToolContext) -> str:
    return context.show_image_blocking(b"PNG", name="drawing")


def scrawl(context: ToolContext) -> str:
    return context.show_image_blocking(b"scrawl")


def lose(context: ToolContext) -> str:
    return context.show_image_blocking(b"broken disk")


def draw_all_at_once(context: ToolContext) -> list[str]:
    lines: list[str] = []
    threads = [
        threading.Thread(target=lambda: lines.append(draw(context))) for _ in range(MOST_IMAGES + 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(lines)


async def test_plain_tool_shows_an_image_and_gets_its_line(album):
    outcome = await Threads(album, draw).run("draw")
    assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, LINE)
    assert [image.name for image in outcome.images] == ["drawing"]
    assert album.kept == [b"PNG"]


async def test_plain_tool_reads_why_an_image_is_refused(album):
    outcome = await Threads(album, scrawl).run("scrawl")
    assert outcome.result == "[image, 6 bytes, not shown: It is no image.]"
    assert outcome.images == ()


async def test_nothing_is_shown_where_the_host_keeps_nothing(album):
    outcome = await Threads(album, draw).run("draw", keeps=False)
    assert outcome.result == "[image, 3 bytes, not shown]"


async def test_what_fails_while_an_image_is_kept_fails_the_tool(album):
    outcome = await Threads(album, lose).run("lose")
    assert outcome.status is CallStatus.FAILED
    assert "OSError" in outcome.result
    assert "secret" not in outcome.result


async def test_threads_of_one_call_show_no_more_than_one_after_the_other(album):
    outcome = await Threads(album, draw_all_at_once).run("draw_all_at_once")
    assert outcome.result.count(LINE) == len(outcome.images) == MOST_IMAGES
    assert outcome.result.count(f"A call shows {MOST_IMAGES} images at most.") == 2


async def test_refused_images_count(album):
    def insist(context: ToolContext) -> str:
        for _ in range(MOST_IMAGES):
            scrawl(context)
        return draw(context)

    outcome = await Threads(album, insist).run("insist")
    assert outcome.result.endswith(f"A call shows {MOST_IMAGES} images at most.]")
    assert (album.asked, album.kept) == (MOST_IMAGES, [])


@pytest.mark.parametrize("by", ["cancel", "limit"])
async def test_wait_for_an_image_ends_with_its_call(album, by):
    album.may_go_on.clear()
    threads = Threads(album, draw)
    live, running = threads.start("draw")
    await eventually(lambda: album.asked)
    if by == "cancel":
        live.cancel(BY_USER)
    else:
        threads.executor.set_deadline(live, 0.01)
    outcome = await running
    expected = CallStatus.CANCELLED if by == "cancel" else CallStatus.TIMED_OUT
    assert (outcome.status, outcome.disposition) == (expected, Disposition.SETTLED)
    assert (outcome.images, threads.invoker.abandoned) == ((), 0)


async def test_image_of_an_abandoned_call_is_refused(album, gates):
    raised = []

    def hang(context: ToolContext) -> None:
        assert gates["hang"].wait(PATIENCE)
        try:
            draw(context)
        except Exception as error:  # noqa: BLE001 - told apart below
            raised.append(type(error).__name__)

    threads = Threads(album, hang, grace=0.2)
    live, running = threads.start("hang")
    await eventually(lambda: live.elapsed)
    live.cancel(BY_USER)
    assert (await running).status is CallStatus.ABANDONED
    gates["hang"].set()
    await eventually(lambda: raised)
    await eventually(lambda: threads.invoker.abandoned == 0)
    assert (raised, album.asked) == (["Cancelled"], 0)


async def test_image_of_an_ended_call_is_refused(album, gates):
    lines = []

    def leave_a_thread(context: ToolContext) -> str:
        def show_late() -> None:
            assert gates["late"].wait(PATIENCE)
            lines.append(draw(context))

        threading.Thread(target=show_late, daemon=True).start()
        return "done"

    outcome = await Threads(album, leave_a_thread).run("leave_a_thread")
    gates["late"].set()
    await eventually(lambda: lines)
    assert (outcome.images, album.asked) == ((), 0)
    assert lines == ["[image, 3 bytes, not shown: The call has ended.]"]


async def test_image_that_was_not_kept_before_the_end_of_its_call_is_refused(album, gates):
    album.may_go_on.clear()
    lines = []

    def leave_a_thread(context: ToolContext) -> str:
        threading.Thread(target=lambda: lines.append(draw(context)), daemon=True).start()
        assert gates["asked"].wait(PATIENCE)
        return "done"

    live, running = Threads(album, leave_a_thread).start("leave_a_thread")
    await eventually(lambda: album.asked)
    gates["asked"].set()
    outcome = await running
    album.may_go_on.set()
    await eventually(lambda: lines)
    assert (outcome.images, live.images.shown) == ((), ())
    assert lines == ["[image, 3 bytes, not shown: The call has ended.]"]


async def test_coroutine_that_would_block_its_own_loop_fails(album, caplog):
    async def block(context: ToolContext) -> str:
        return context.show_image_blocking(b"PNG")

    outcome = await Threads(album, block).run("block")
    assert (outcome.status, album.asked) == (CallStatus.FAILED, 0)
    assert "A coroutine awaits show_image" in caplog.text


async def test_coroutine_shows_an_image_from_a_thread_of_its_own(album):
    async def delegate(context: ToolContext) -> str:
        return await asyncio.to_thread(draw, context)

    outcome = await Threads(album, delegate).run("delegate")
    assert (outcome.result, len(outcome.images)) == (LINE, 1)
