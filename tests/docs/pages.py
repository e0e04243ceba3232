"""Reads the documents: their prose, links, headings, tables and code."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    (
        *DOCS.rglob("*.md"),
        *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")),
    )
)

_BLOCK = re.compile(r"^```([\w{}-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FIRST_CELL = re.compile(r"^\| `?([^|`]+)`? \|", re.MULTILINE)


class Link(NamedTuple):
    """Where a page points to: a file, and a heading in it ("" = the whole of it)."""

    page: Path
    target: Path
    anchor: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)} → {self.target.name}#{self.anchor}"


def text_of(page: Path) -> str:
    return page.read_text("utf-8")


def prose_of(page: Path) -> str:
    """The page without its code blocks."""
    return _BLOCK.sub("", text_of(page))


def python_blocks(page: Path) -> list[str]:
    return [code for language, code in _BLOCK.findall(text_of(page)) if language == "python"]


def links_of(page: Path) -> Iterator[Link]:
    """The links to other files of the repository, and within the page."""
    for address in _LINK.findall(prose_of(page)):
        if "://" not in address:
            path, _, anchor = address.partition("#")
            yield Link(page, (page.parent / path).resolve() if path else page, anchor)


def anchors_of(page: Path) -> set[str]:
    """The headings as addresses."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in _HEADING.findall(prose_of(page))
    }


def section(page: Path, heading: str) -> str:
    """What stands under a heading."""
    parts = re.split(r"^## (.+)$", text_of(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def first_cells(table: str) -> set[str]:
    """The first column of a page's tables."""
    rows = {cell.strip() for cell in _FIRST_CELL.findall(table)}
    return {cell for cell in rows if set(cell) != {"-"}}
