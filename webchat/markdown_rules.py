"""Renders and sanitises Markdown. Code is highlighted, bare addresses become links, and images become text."""

import logging
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import nh3
from django.utils.html import escape
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from webchat import syntax_highlighting

# At the level DEBUG, the parser logs each rule that it tries, which is about a thousand lines for two answers.
_parser_log = logging.getLogger("markdown_it")
if _parser_log.level == logging.NOTSET:
    _parser_log.setLevel(logging.INFO)

MAX_ADDRESS = 200  # characters of an image's address
ALIGNED = {f"text-align:{side}": f"align-{side}" for side in ("left", "center", "right")}
_TEXT = {
    "a",
    "blockquote",
    "br",
    "code",
    "del",
    "em",
    "hr",
    "li",
    "ol",
    "p",
    "pre",
    "s",
    "strong",
    "ul",
}
_TAGS = _TEXT | {"h1", "h2", "h3", "h4", "h5", "h6", "table", "tbody", "td", "th", "thead", "tr"}
_TAGS |= {"div", "span"}
_ATTRIBUTES = {"a": {"href", "title", "target"}, "ol": {"start"}}
_CELLS = set(ALIGNED.values())
_CLASSES = {
    "div": {"code-block", "code-head"},
    "span": {"code-language", "image", *syntax_highlighting.CLASSES},
    "td": _CELLS,
    "th": _CELLS,
}
_SCHEMES = {"http", "https", "mailto"}
# The pattern excludes characters that change the direction of the text after them.
_ADDRESS = re.compile(r"https?://[^\s<>\"\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_NO_END = ".,;:!?'*_~"
_TASK = re.compile(r"\[([ xX])\] ")


def render(text: str) -> str:
    """Return safe HTML without scripts, styles and images. Links open in a new tab and send no referrer."""
    return nh3.clean(
        _PARSER.render(text),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes=_SCHEMES,
        link_rel="noopener nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


def _code(_renderer: Any, tokens: Sequence[Token], index: int, *_more: Any) -> str:
    token = tokens[index]
    language = (token.info.split() or [""])[0][:30]
    label = f'<span class="code-language">{escape(language)}</span>'
    return (
        f'<div class="code-block"><div class="code-head">{label}</div>'
        f"<pre><code>{syntax_highlighting.highlight(token.content, language.lower())}</code></pre></div>\n"
    )


def _image(_renderer: Any, tokens: Sequence[Token], index: int, *_more: Any) -> str:
    """Render an image as text. It is never loaded, because its server could track the readers."""
    token = tokens[index]
    address = str(token.attrGet("src") or "")
    if len(address) > MAX_ADDRESS:
        address = f"{address[:MAX_ADDRESS]}…"
    return f'<span class="image">{escape(token.content)} <code>{escape(address)}</code></span>'


def _align_cells(state: StateCore) -> None:
    """Set the alignment of cells with a class, because the page's Content-Security-Policy forbids inline styles."""
    for token in state.tokens:
        if token.type in {"th_open", "td_open"}:
            style = str(token.attrs.pop("style", ""))
            if style in ALIGNED:
                token.attrSet("class", ALIGNED[style])


def _mark_tasks(state: StateCore) -> None:
    """Replace the checkbox of each task in a list with a symbol."""
    for item, paragraph, inline in zip(
        state.tokens, state.tokens[1:], state.tokens[2:], strict=False
    ):
        is_item = item.type == "list_item_open" and paragraph.type == "paragraph_open"
        first = inline.children[0] if is_item and inline.children else None
        if first is not None and (box := _TASK.match(first.content)):
            first.content = f"{'☐' if box[1] == ' ' else '☑'} {first.content[box.end() :]}"


def _link_addresses(state: StateCore) -> None:
    """Turn bare addresses in text into links."""
    for token in state.tokens:
        if token.type != "inline" or "://" not in token.content:
            continue
        depth = 0
        children: list[Token] = []
        for child in token.children or ():
            depth += (child.type == "link_open") - (child.type == "link_close")
            linked = child.type == "text" and depth == 0
            children += _linked(child, state.md) if linked else [child]
        token.children = children


def _show_addresses(state: StateCore) -> None:
    """Make invisible characters visible in the text of links like `<https://…>`."""
    for token in state.tokens:
        children = token.children or ()
        for link, text in pairwise(children):
            if link.type == "link_open" and link.info == "auto":
                text.content = _visible(text.content)


def _visible(address: str) -> str:
    """Percent-encode the characters that are invisible or change the order of their neighbours."""
    return "".join(
        each if each.isprintable() else quote(each, errors="replace") for each in address
    )


def _linked(token: Token, markdown: MarkdownIt) -> Iterator[Token]:
    text, end = token.content, 0
    for match in _ADDRESS.finditer(text):
        address = _without_end(match.group())
        href = markdown.normalizeLink(address)
        if not markdown.validateLink(href):
            continue
        yield _text(text[end : match.start()])
        yield Token("link_open", "a", 1, attrs={"href": href})
        yield _text(_visible(address))
        yield Token("link_close", "a", -1)
        end = match.start() + len(address)
    yield _text(text[end:])


def _without_end(address: str) -> str:
    """Return the address without final characters that belong to the sentence, such as a full stop or an unmatched
    bracket.
    """
    while address:
        if address[-1] in _NO_END or (
            address[-1] in ")]}"
            and address.count(address[-1]) > address.count("([{"[")]}".index(address[-1])])
        ):
            address = address[:-1]
        else:
            break
    return address


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.core.ruler.push("bare_links", _link_addresses)
    parser.core.ruler.push("visible_links", _show_addresses)
    parser.core.ruler.push("aligned_cells", _align_cells)
    parser.core.ruler.push("tasks", _mark_tasks)
    for name, rule in (("fence", _code), ("code_block", _code), ("image", _image)):
        parser.add_render_rule(name, rule)
    return parser


_PARSER = _parser()
