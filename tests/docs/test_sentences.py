"""A sentence in a document, a docstring or a comment has at most twenty words."""

import re
from collections.abc import Iterator

from tests.docs.pages import PAGES, ROOT, prose_of

MOST_WORDS = 20
FOLDERS = "benchmarks config governance scripts static templates tests turns webchat"
_SLASHES = r"/\*.*?\*/|(?:^[ \t]*//[^\n]*\n)+|[ \t]// [^\n]+"
_HASHES = r"(?:^[ \t]*#[^\n]*\n)+|[ ]{2}# [^\n]+"
_COMMENTS = {
    "*.py": r'(?:\A|(?<=:\n))[ \t]*r?""".+?"""|' + _HASHES,
    "*.bash": _HASHES,
    "*.js": _SLASHES,
    "*.css": _SLASHES,
    "*.html": r"\{#.*?#\}|\{% comment.*?endcomment %\}|<!--.*?-->",
}
_MARK = re.compile(
    r'^[ \t]*(?:#+|//|/?\*+/?|r?""")|"""$|\{#|#\}|\{% (?:end)?comment.*?%\}|<!--|-->', re.MULTILINE
)
_ONE_WORD = re.compile(r"``.+?``|`[^`]*`|\{(?:[^{}]|\{[^{}]*\})*\}+|(?<=\])\([^)]*\)", re.DOTALL)
_END = re.compile(r"(?<=[.!?:])[)\"'*_”’]*\s|\n\s*(?:\n|[-*>#]+\s|\d+\.\s)|[|├└│·]|@\w+")


def texts() -> Iterator[tuple[str, str]]:
    yield from ((page.name, prose_of(page)) for page in PAGES)
    for name, comments in _COMMENTS.items():
        for path in (path for top in FOLDERS.split() for path in (ROOT / top).rglob(name)):
            for comment in re.findall(comments, path.read_text("utf-8"), re.MULTILINE | re.DOTALL):
                yield str(path.relative_to(ROOT)), _MARK.sub("", comment)


def long_sentences(text: str) -> list[str]:
    sentences = (" ".join(each.split()) for each in _END.split(_ONE_WORD.sub("X", text)))
    return [each for each in sentences if len(re.findall(r"\S*\w\S*", each)) > MOST_WORDS]


def test_a_sentence_has_at_most_twenty_words():
    assert [f"{where}: {each}" for where, text in texts() for each in long_sentences(text)] == []
