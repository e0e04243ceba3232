"""What an agent's Markdown becomes: code in colours, links, tables, images as text, long answers whole; and nothing that acts."""

import re
import time
from html import unescape
from itertools import product
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webchat import markdown, syntax_highlighting
from webchat.markdown import render_markdown


def test_code_has_its_language_and_colours():
    html = render_markdown("```python\ndef f():\n    return '<b>'\n```")
    assert '<span class="code-language">python</span>' in html
    assert '<span class="k">def</span>' in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_code_in_an_unknown_language_is_shown_as_it_is():
    html = render_markdown('```"><script>x\n1 < 2\n```')
    assert "1 &lt; 2" in html
    assert "<script" not in html


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("See https://a.example/b.", "https://a.example/b"),
        ("(https://a.example/b_(c)_d)", "https://a.example/b_(c)_d"),
        ("https://a.example/?q=1&r=2!", "https://a.example/?q=1&amp;r=2"),
    ],
)
def test_a_bare_address_is_a_link_without_the_end_of_its_sentence(text: str, address: str):
    html = render_markdown(text)
    assert f'<a href="{address}" target="_blank" rel="noopener nofollow">{address}</a>' in html


@pytest.mark.parametrize(
    "text", ["`https://a.example`", "```\nhttps://a.example\n```", "javascript:alert(1)"]
)
def test_what_is_no_address_in_the_text_is_no_link(text: str):
    assert "<a" not in render_markdown(text)


def test_a_link_in_words_is_one_link():
    assert render_markdown("[at https://a.example](https://b.example)").count("<a ") == 1


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u200b", "\ufeff"])
@pytest.mark.parametrize("text", ["<https://a.example/{}gpj.exe>", "<https://a.example/{}>"])
def test_an_address_that_is_shown_hides_no_mark_of_direction(text: str, mark: str):
    for written in (mark, quote(mark)):
        html = render_markdown(text.format(written))
        assert mark not in html
        assert html.count(quote(mark)) == 2  # in the address, and in what is shown of it


def test_a_bare_address_hides_nothing_that_is_not_seen():
    assert "\u200b" not in render_markdown("https://a.example/\u200bgpj.exe")


def test_what_is_kept_of_rendered_blocks_is_bounded_in_bytes(monkeypatch):
    texts = [f"```python\n{'é=1;' * 500}{n}\n```" for n in range(20)]
    rendered = markdown.RenderedBlocks(max_bytes=200_000)
    assert [rendered.html_of(text) for text in texts] == list(map(render_markdown, texts))
    assert 100_000 < rendered.memory <= 200_000
    rendered_anew: list[str] = []
    monkeypatch.setattr(markdown, "_render_block", lambda text: rendered_anew.append(text) or "")
    assert rendered.html_of(texts[-1]) == render_markdown(texts[-1])
    assert rendered_anew == []
    rendered.html_of(texts[0])
    assert rendered_anew == [texts[0]]


def test_the_columns_of_a_table_are_aligned_without_a_style():
    html = render_markdown("| a | b |\n|--:|:-:|\n| 1 | 2 |")
    assert '<td class="align-right">1</td>' in html
    assert '<td class="align-center">2</td>' in html
    assert "style" not in html


def test_an_image_is_its_text_and_its_address_and_is_never_loaded():
    html = render_markdown("![A <b>cat</b>](https://evil.example/cat.png?who=you)")
    assert "A &lt;b&gt;cat&lt;/b&gt; <code>https://evil.example/cat.png?who=you</code>" in html
    assert "<img" not in html
    assert "src" not in html


def test_tasks_have_boxes():
    html = render_markdown("- [ ] one\n- [x] two")
    assert "☐ one" in html
    assert "☑ two" in html


def test_a_long_answer_is_rendered_to_its_end():
    text = "\n\n".join(f"## Part {n}\n\n**bold** {'word ' * 40}" for n in range(500))
    html = render_markdown(text)
    assert len(text) > 10 * markdown.BLOCK
    assert html.count("<h2>") == 500
    assert "**" not in html


def test_long_code_stays_code_to_its_end():
    code = "\n".join(f"**line** {n} " + "x" * 50 for n in range(2_000))
    html = render_markdown(f"````text\n{code}\n````\n\nafter **all**")
    assert "<strong>line" not in html
    assert "<strong>all</strong>" in html
    assert all(f"**line** {n} " in html for n in (0, 1_000, 1_999))


@settings(max_examples=30)
@given(
    st.lists(
        st.sampled_from(["```\n", "~~~\n", "a\n", "\n", "- b\n", "c" * 4_000 + "\n", "    d\n"]),
        max_size=40,
    )
)
def test_no_word_of_a_long_text_is_lost_or_said_twice(lines: list[str]):
    text = "".join(lines)
    pieces = list(markdown._blocks(text))
    assert all(len(piece) <= 3 * markdown.BLOCK for piece in pieces)
    for letter in "abcd":
        assert sum(piece.count(letter) for piece in pieces) == text.count(letter)


PIECES = (
    "a",
    "a ",
    " ",
    "\n",
    "\\",
    '\\"',
    "'",
    "`",
    "//\\\n",
    "/*",
    "*/",
    "<",
    "<!--",
    "-",
    "@",
    "$",
    "#",
    "[",
    "a.",
    "a:",
    "1",
    " '",
    "=/",
    "=/[",
    "[a](",
    "![",
    "**",
    "&a",
    "#a",
    "\nmatch ",
)


def test_no_code_keeps_a_thread_busy_for_long():
    slow = {}
    for language, piece in product(sorted(syntax_highlighting._PATTERNS), PIECES):
        code = "a " + piece * (2 * markdown.BLOCK // len(piece)) + "!"
        begun = time.thread_time()
        syntax_highlighting.highlight(code, language)
        if (seconds := time.thread_time() - begun) >= 1.0:
            slow[language, piece] = seconds
    assert slow == {}


@pytest.mark.parametrize(
    ("language", "code", "coloured"),
    [
        ("bash", "cat <<EOF\nit's text\nEOF", []),
        ("css", "a:hover { color: #fff; }", [("n", "color"), ("m", "#fff")]),
        ("html", "<!doctype html>&amp;", [("k", "<!doctype"), ("k", ">"), ("m", "&amp;")]),
        ("java", 'x = """\n"q"\n"""; y', [("s", '"""\n"q"\n"""')]),
        ("jsx", 'x = /[/"]+/g; y = 1 / 2', [("s", '/[/"]+/g'), ("m", "1"), ("m", "2")]),
        ("md", "# A\n- `b`", [("k", "# A"), ("m", "-"), ("s", "`b`")]),
        ("python", "match x:\nmatch = rb'y'", [("k", "match"), ("s", "rb'y'")]),
        ("yml", "a: it's b", [("n", "a")]),
    ],
)
def test_code_is_coloured_as_its_language_is_written(language: str, code: str, coloured):
    html = syntax_highlighting.highlight(code, language)
    spans = re.findall(r'<span class="(\w+)">(.*?)</span>', html, re.DOTALL)
    assert [(kind, unescape(text)) for kind, text in spans] == coloured


@given(
    code=st.lists(st.sampled_from([*"\"'`\\\n /*#-<>!$@[]():.=a1", '"""', "def", "-->", "ä"])).map(
        "".join
    ),
    language=st.sampled_from(sorted(syntax_highlighting.LANGUAGES)),
)
def test_colours_change_no_character_of_the_code(code: str, language: str):
    html = syntax_highlighting.highlight(code, language)
    assert unescape(re.sub(r"</?span[^>]*>", "", html)) == code


def test_code_in_an_answer_does_not_stop_the_process():
    """Continued comments behind a word: the lexer of Pygments tried each way to divide them."""
    begun = time.thread_time()
    render_markdown("```c\na " + "//\\\n" * 40 + "!\n```")
    assert time.thread_time() - begun < 1.0
