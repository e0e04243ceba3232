"""The beginning and the end of a text that comes in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from governance.toolbox.excerpt import Excerpt, spaced


@given(
    pieces=st.lists(st.text(alphabet="ab\n", max_size=200), max_size=30), limit=st.integers(62, 400)
)
def test_what_is_kept_and_what_is_left_out_make_the_whole(pieces, limit):
    excerpt = Excerpt(limit)
    for piece in pieces:
        excerpt.add(piece)
    whole, shown = "".join(pieces), excerpt.render()
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


def test_many_tiny_pieces_are_held_in_bounded_memory():
    excerpt = Excerpt(100)
    for _ in range(10_000):
        excerpt.add("x")
    assert len(excerpt._tail) <= 100


def test_numbers_are_grouped():
    assert spaced(9_950_000) == "9 950 000"
