"""Finished blocks of a streaming answer over the socket: rendered once, in order, safe, the same for whoever comes later."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import UUID, uuid4

import nh3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import eventually
from tests.turns.support import CHAT_MODEL, ChatDriver, recording_sink
from tests.webchat.sockets import Frame, Socket
from turns import selectors
from turns.events import sinks
from turns.services import ConversationSummary
from turns.testing import gate, text
from webchat.live_blocks import LiveAnswer, live_answers
from webchat.markdown import render_markdown

Connect = Callable[..., Socket]
HEAD = "# A **head**\n\n"
CODE = "```python\nx = 1\n\ny = 2\n```\n"
ANSWER = f"{HEAD}Some *words*.\n\n{CODE}- one\n- two\n\nAt the end"


class Stream:
    """Pieces of an answer, as the turn that streams it pushes them."""

    def __init__(self, conversation: ConversationSummary, *, step: int = 1) -> None:
        self.turn_id = str(uuid4())
        self._conversation = conversation
        self._step = step
        self._length = 0

    def push(self, said: str, *, turn_id: str = "") -> None:
        """Push the next piece."""
        delta = {"type": "text_delta", "turn_id": self.turn_id, "text": said, "step": self._step}
        sinks.push(self._conversation.id, {**delta, "offset": self._length})
        self._length += len(said)

    def begin(self, step: int) -> None:
        """Go on with the next message of the turn."""
        self._step, self._length = step, 0


async def blocks_up_to(socket: Socket, end: int) -> list[Frame]:
    """Read on until the blocks reach so far; return those of the answer, which must be without a gap."""
    found = [frame for frame in socket.seen if frame["type"] == "text_html"]
    while not found or found[-1]["end"] < end:
        found.append(await socket.read("text_html"))
    return found


def html_of(frames: Iterable[Frame]) -> str:
    """Return the HTML of blocks that come without a gap; those that come again are ignored."""
    html, known = "", 0
    for frame in frames:
        if frame["end"] <= known:
            continue
        assert frame["offset"] == known
        html, known = html + frame["html"], frame["end"]
    return html


def answers() -> dict[UUID, LiveAnswer]:
    """Return the answers that are rendered on this event loop."""
    here = live_answers.get()
    return here.by_conversation if here else {}


async def test_what_is_finished_of_an_answer_comes_rendered_while_it_streams(
    connect: Connect, conversation: ConversationSummary
):
    socket = await connect().open(html=True)
    stream = Stream(conversation)
    for start in range(0, len(ANSWER), 7):
        stream.push(ANSWER[start : start + 7])
    frames = await blocks_up_to(socket, ANSWER.index("At the end"))
    html = html_of(frames)
    assert "<h1>A <strong>head</strong></h1>" in html
    assert '<span class="code-language">python</span>' in html
    assert "<li>two</li>" in html
    assert render_markdown(ANSWER) == html + "<p>At the end</p>\n"


async def test_blocks_come_after_their_text(connect: Connect, conversation: ConversationSummary):
    socket = await connect().open(html=True)
    Stream(conversation).push(ANSWER)
    await blocks_up_to(socket, len(HEAD))
    known = 0
    for frame in socket.seen:
        if frame["type"] == "text_delta":
            known = frame["offset"] + len(frame["text"])
        if frame["type"] == "text_html":
            assert frame["end"] <= known


async def test_who_does_not_ask_gets_none_and_nothing_is_rendered(
    connect: Connect, conversation: ConversationSummary
):
    socket = await connect().open()
    Stream(conversation).push(ANSWER)
    await socket.read("text_delta")
    await socket.ping()
    assert answers() == {}
    assert all(frame["type"] != "text_html" for frame in socket.seen)


async def test_all_sockets_of_a_process_share_one_rendering_and_the_last_one_ends_it(
    connect: Connect, conversation: ConversationSummary
):
    sockets = [await connect().open(html=True) for _ in range(3)]
    (answer,) = answers().values()
    stream = Stream(conversation)
    for piece in (HEAD, "Some ", "words.\n\n", CODE):
        stream.push(piece)
    end = len(HEAD) + len("Some words.\n\n") + len(CODE)
    seen = [await blocks_up_to(socket, end) for socket in sockets]
    assert seen[0] == seen[1] == seen[2]
    assert [blocks.html for blocks in answer.blocks] == [frame["html"] for frame in seen[0]]
    for socket in sockets:
        await socket.leave()
    await eventually(lambda: answers() == {})


async def test_the_next_message_of_a_turn_has_blocks_of_its_own(
    connect: Connect, conversation: ConversationSummary
):
    socket = await connect().open(html=True)
    stream = Stream(conversation)
    stream.push(HEAD)
    await socket.read("text_html")
    stream.begin(2)
    stream.push("## Next\n")
    frame = await socket.read("text_html")
    assert (frame["offset"], frame["end"], frame["html"]) == (0, 8, "<h2>Next</h2>\n")


@pytest.mark.usefixtures("through_layer")
async def test_blocks_of_a_turn_in_another_process_are_rendered_here(
    connect: Connect, conversation: ConversationSummary
):
    sockets = [await connect().open(html=True) for _ in range(2)]
    stream = Stream(conversation)
    for start in range(0, len(ANSWER), 11):
        stream.push(ANSWER[start : start + 11])
    for socket in sockets:
        html = html_of(await blocks_up_to(socket, ANSWER.index("At the end")))
        assert render_markdown(ANSWER).startswith(html)


async def test_after_a_gap_nothing_is_rendered_until_all_of_the_text_has_come(
    connect: Connect, conversation: ConversationSummary
):
    socket = await connect().open(html=True)
    stream = Stream(conversation)
    stream.push(HEAD)
    await socket.read("text_html")
    lost = {"type": "text_delta", "turn_id": stream.turn_id, "step": 1}
    sinks.push(conversation.id, {**lost, "offset": 100, "text": "\n\n# Elsewhere\n"})
    sinks.push(conversation.id, {**lost, "offset": 0, "text": f"{HEAD}## Here\n"})
    frames = [await socket.read("text_html") for _ in range(2)]
    assert html_of(frames) == "<h1>A <strong>head</strong></h1>\n<h2>Here</h2>\n"


@pytest.fixture
def chat(person: Any, conversation: ConversationSummary, settings: Any) -> Iterator[ChatDriver]:
    settings.TURNS_CHAT_MODEL = CHAT_MODEL
    with recording_sink() as sink:
        yield ChatDriver(user=person, conversation_id=conversation.id, sink=sink)


async def stored(chat: ChatDriver, turn_id: UUID) -> None:
    """Wait until who comes later can read the text."""

    async def is_stored() -> bool:
        return (await selectors.partial_text(turn_id=turn_id, user=chat.user))[0] == ANSWER

    await eventually(is_stored)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_who_comes_in_the_middle_gets_the_text_and_its_blocks_stored_or_not(
    connect: Connect, chat: ChatDriver, comes_back: bool
):
    held = gate()
    chat.use_script([text(ANSWER), held, text(" it ends.\n\nReally.")])
    first = await connect().open(html=True)
    turn_id = await chat.say()
    await first.read("turn_start")
    seen = await blocks_up_to(first, ANSWER.index("At the end"))
    second = await connect().open(html=True, after=max(first.seqs) if comes_back else None)
    delta = await second.read("text_delta", lambda frame: frame["offset"] == 0)
    assert (delta["text"], delta["step"]) == (ANSWER, 1)
    assert await blocks_up_to(second, seen[-1]["end"]) == seen
    held.opening.set()
    for socket in (first, second):
        message = await socket.read("message", lambda frame: frame["role"] == "assistant")
        html = html_of(frame for frame in socket.seen if frame["type"] == "text_html")
        assert message["html"].startswith(html)
    await chat.ended(turn_id)


async def test_a_process_that_only_knows_the_stored_text_renders_it(
    connect: Connect, chat: ChatDriver
):
    held = gate()
    chat.use_script([text(ANSWER), held])
    await stored(chat, await chat.say())
    socket = await connect().open(html=True)  # the first here that asks for HTML
    html = html_of(await blocks_up_to(socket, ANSWER.index("At the end")))
    assert render_markdown(ANSWER).startswith(html)


async def test_a_client_that_asks_for_the_text_again_gets_the_blocks_again(
    connect: Connect, chat: ChatDriver
):
    held = gate()
    chat.use_script([text(ANSWER), held])
    socket = await connect().open(html=True)
    turn_id = await chat.say()
    seen = await blocks_up_to(socket, ANSWER.index("At the end"))
    known = len(socket.seen)
    await socket.send(type="resync", turn_id=str(turn_id))
    await socket.read("text_html", lambda frame: frame["end"] == seen[-1]["end"])
    again = [frame for frame in socket.seen[known:] if frame["type"] == "text_html"]
    assert again == seen


# What may not be in HTML, in pieces that only together would be something.
HOSTILE = st.sampled_from(
    [
        *("<", ">", '"', "'", "&", "`", "```", "~~~", "\n", "\n\n", "\n\n", " ", "](", ")", "[a]: ", "![", "[x"),
        *("script", "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "javascript:alert(1)"),
        *("data:text/html,x", "<svg/onload=alert(1)>", "style=", "onclick=", "html\n", "# ", "- ", "> "),
        *("https://evil.example/", "| a |\n|--|\n", "&#x3c;", "<!--", "-->", "<a href=", "\\", "a"),
    ]
)  # fmt: skip


def are_harmless(html: str) -> bool:
    """Whether nothing but what the page may show is left, cleaned again by a list of its own."""
    tags = {"a", "blockquote", "br", "code", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p"}  # fmt: skip
    tags |= {"pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}
    attributes = {"a": {"href", "title", "target"}, "ol": {"start"}, "*": {"class"}}
    cleaned = nh3.clean(
        html,
        tags=tags,
        attributes=attributes,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener nofollow",
    )
    return cleaned == html


@settings(max_examples=150)
@given(st.lists(HOSTILE, max_size=30).map("".join), st.integers(min_value=1, max_value=9))
def test_hostile_text_in_pieces_becomes_nothing_that_acts(said: str, size: int):
    async def stream() -> list[str]:
        answer = LiveAnswer(asyncio.Lock())
        for offset in range(0, len(said), size):
            piece = said[offset : offset + size]
            answer.add({"turn_id": "t", "step": 1, "offset": offset, "text": piece})
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})  # type: ignore[arg-type]
        return [blocks.html for blocks in answer.blocks]

    for html in asyncio.run(stream()):
        assert are_harmless(html), html
