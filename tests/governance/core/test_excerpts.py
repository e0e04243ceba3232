"""The beginning and the end of a text that comes in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from governance.core.excerpts import (
    ExactText,
    Excerpt,
    as_displayed,
    excerpt,
    last_lines,
    shortened,
    spaced,
)


@given(
    pieces=st.lists(st.text(alphabet="ab\n", max_size=200), max_size=30), limit=st.integers(62, 400)
)
def test_what_is_kept_and_what_is_left_out_make_the_whole(pieces, limit):
    kept = Excerpt.within(limit)
    for piece in pieces:
        kept.add(piece)
    whole, shown = "".join(pieces), str(kept)
    assert len(shown) <= max(limit, len(whole))
    if "…" not in shown:
        assert shown == whole
        return
    head, rest = shown.split("\n… ", 1)
    left_out, tail = rest.split(" characters left out …\n", 1)
    assert len(shown) <= limit
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert len(head) + len(tail) + int(left_out.replace(" ", "")) == len(whole)


@given(st.lists(st.integers(0, 60), max_size=8), st.integers(0, 20), st.integers(0, 20))
def test_both_ends_are_as_long_as_they_shall_be(sizes, head, tail):
    kept, whole = Excerpt(head=head, tail=tail), ""
    for index, size in enumerate(sizes):
        piece = chr(ord("a") + index) * size
        whole += piece
        kept.add(piece)

    left_out = len(whole) - head - tail
    gap = f"\n… {left_out} characters left out …\n"
    expected = f"{whole[:head]}{gap}{whole[len(whole) - tail :]}" if left_out > 0 else whole
    assert str(kept) == expected


def test_of_a_long_text_more_of_the_beginning_is_kept():
    assert excerpt("x" * 8, limit=8) == "x" * 8
    assert excerpt("abcdefghij", limit=8) == "abcdef\n… 2 characters left out …\nij"


def test_many_tiny_pieces_are_held_in_bounded_memory():
    kept = Excerpt(head=0, tail=100)
    for _ in range(10_000):
        kept.add("x")
    assert len(kept._tail) <= 100


def test_numbers_are_grouped():
    assert spaced(9_950_000) == "9 950 000"


def test_the_last_lines_are_plain_text_without_empty_ones():
    said = "one\n\n\x1b[31mtwo\x1b[0m\r\n \nthree\x07\n"
    assert last_lines(said, 2) == "two\nthree"
    assert last_lines(said, 6) == "one\ntwo\nthree"
    assert last_lines("x" * 10_000, 6) == "x" * 199 + "…"


def test_a_text_that_is_shortened_says_so_within_its_limit():
    assert shortened("12345", limit=5) == "12345"
    assert shortened("123456", limit=5) == "1234…"


def test_a_text_is_what_a_terminal_would_leave_of_it():
    said = "\x1b[1;31mred\x1b[0m\r\n\x1b]0;title\x07 10%\r 20%\r\x1b[K100%\n\x1b]cut\nend\r"
    assert as_displayed(said) == "red\r\n100%\n\nend\r"
    assert as_displayed("a\tb\r\nc") == "a\tb\r\nc"
    assert as_displayed("\x1b(Bplain") == "plain"
    assert as_displayed(ExactText("a\rb\x1b[0m")) == "a\rb\x1b[0m"
