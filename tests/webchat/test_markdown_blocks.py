"""Which blocks of a growing Markdown text are finished: never too early, however the text is cut, and soon."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from webchat import live_blocks
from webchat.live_blocks import GrowingText, finished_length
from webchat.markdown import render_markdown

# What blocks begin, end and hide in each other with.
LINES = """
para|a # b|# Head|## |- item|  - sub|  more|   ```|```|```py|~~~|````|> quote|> ```|> - x|1. one|2. two|10) x|   three
    code|---|===|***|- - -|-|- ```|  ```|* ```|[a]: /x|'title'|"t|t"|[a]|two  |```x```|<div>|  |#|1|1.|`|    - x| - y|é
a ¦ b|--¦--|1 ¦ 2|&amp;|**bold**
"""
LINE = st.sampled_from(
    ["", "", "\tcode", "\r", "x\r", *LINES.strip().replace("\n", "|").split("|")]
).map(lambda line: line.replace("¦", "|"))
TEXTS = st.lists(LINE, max_size=12).map("\n".join)
SIZES = st.lists(st.integers(min_value=1, max_value=20), min_size=1, max_size=8)

PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
PARSER.core.ruler.enableOnly(["normalize", "block"])


def pieces(text: str, sizes: list[int]) -> Iterator[str]:
    """Cut a text as a chat model might."""
    start = 0
    while start < len(text):
        for size in sizes:
            yield text[start : start + size]
            start += size


def shape(text: str) -> list[tuple[object, ...]]:
    return [
        (token.type, token.tag, token.markup, token.info, token.content, token.level, token.hidden)
        for token in PARSER.parse(text)
    ]


def streamed(text: str, sizes: list[int]) -> tuple[list[str], str]:
    """Return the blocks that were finished while a text came, and the rest."""
    growing, blocks, known = GrowingText(), [], ""
    for piece in pieces(text, sizes):
        growing.add(piece)
        known += piece
        while growing.is_due:
            length = finished_length(growing.search())
            blocks.append(known[growing.offset : growing.offset + length])
            growing.drop(length)
    return blocks, text[growing.offset :]


@settings(max_examples=300)
@given(TEXTS, SIZES)
def test_blocks_that_were_cut_off_are_what_they_are_in_the_whole_text(text: str, sizes: list[int]):
    rest, blocks = "", []
    for piece in pieces(text, sizes):  # looks at each piece, where `GrowingText` waits
        rest += piece
        if length := finished_length(rest):
            blocks.append(rest[:length])
            rest = rest[length:]
    assert "".join(blocks) + rest == text
    assert [token for block in [*blocks, rest] for token in shape(block)] == shape(text)


@settings(max_examples=300)
@given(TEXTS, SIZES)
def test_a_growing_text_loses_nothing_and_cuts_where_blocks_end(text: str, sizes: list[int]):
    blocks, rest = streamed(text, sizes)
    assert "".join(blocks) + rest == text
    assert [token for block in [*blocks, rest] for token in shape(block)] == shape(text)


@given(TEXTS.filter(lambda text: "]:" not in text), SIZES)
def test_finished_blocks_are_the_beginning_of_the_finished_message(text: str, sizes: list[int]):
    blocks, _rest = streamed(text, sizes)
    assert render_markdown(text).startswith("".join(map(render_markdown, blocks)))


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("A paragraph.\n\n", ""),
        ("A paragraph.\n", "A paragraph.\n"),
        ("# A head\n", ""),
        ("# A head", "# A head"),
        ("Code:\n```py\nx\n", "```py\nx\n"),
        ("```py\nx\n\ny\n```\n", ""),
        ("```py\nx\n\n# y\n", "```py\nx\n\n# y\n"),
        ("````\n```\nx\n```\n\n", "````\n```\nx\n```\n\n"),
        ("- one\n\n- two\n\n", "- one\n\n- two\n\n"),
        ("- one\n\n- two\n\nA", "A"),
        ("1. one\n   ```\n   x\n\n   y\n   ```\n\nAfter", "After"),
        ("|a|b|\n|-|-|\n|1|2|\n", "|a|b|\n|-|-|\n|1|2|\n"),
        ("|a|b|\n|-|-|\n|1|2|\n\n", ""),
        ("> said\n\n", ""),
        ("---\n", ""),
        ("para\n---\n", ""),
    ],
)
@pytest.mark.parametrize("sizes", [[1], [3], [1_000]])
def test_a_block_is_finished_as_soon_as_nothing_can_be_added_to_it(
    text: str, rest: str, sizes: list[int]
):
    assert streamed(text, sizes)[1] == rest


def searches(text: str, *, size: int) -> tuple[int, int]:
    """Return how many characters of a text in pieces are searched for ends of blocks, and what is unfinished."""
    growing, looked_at = GrowingText(), 0
    for piece in pieces(text, [size]):
        growing.add(piece)
        while growing.is_due:
            looked_at += len(found := growing.search())
            growing.drop(finished_length(found))
    return looked_at, len(text) - growing.offset


@pytest.mark.parametrize(
    "block",
    ["- a\n\n", "> a\n", "word\n", "word ", "    code\n\n", "|a|\n", "1. ```\n", "- # a\n", "[a\n"],
)
def test_a_block_without_end_is_left_to_the_message(block: str):
    looked_at, rest = searches(block * (60_000 // len(block)), size=20)
    assert looked_at <= 6 * live_blocks.MAX_BLOCK
    assert rest > 50_000


def test_code_without_end_is_not_looked_at_before_it_ends():
    code = "```\n" + "x = 1\n\n# y\n" * 8_000
    assert searches(code, size=20) == (0, len(code))
    looked_at, rest = searches(f"{code}```\n", size=20)
    assert looked_at == len(code) + 4
    assert rest == 0


def test_a_hundred_thousand_blocks_are_looked_at_about_once_and_not_all():
    looked_at, rest = searches("a\n\n" * 100_000, size=50)
    assert looked_at < 2 * live_blocks.MAX_TEXT
    assert rest >= 100_000


def test_an_answer_that_comes_at_once_is_cut_like_one_that_streams():
    text = "A paragraph.\n\n" * 5_000
    assert searches(text, size=len(text))[1] == 0
