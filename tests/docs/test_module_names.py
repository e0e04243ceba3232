"""Module names are made of words that the field uses: each has its row in docs/decisions/module-names.md."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, text_of

APPS = ("governance", "turns", "webchat")
PAGE = DOCS / "decisions" / "module-names.md"
WORDS = {
    word
    for cell in re.findall(r"^\| ([a-z, ]+) \|", text_of(PAGE), re.MULTILINE)
    for word in cell.split(", ")
}


def words_of(path: Path) -> set[str]:
    return {word for word in path.stem.split("_") if word}


def singulars(word: str) -> set[str]:
    if word == "children":
        return {"child"}
    return {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}


def modules(app: str) -> list[Path]:
    found = [path for path in (ROOT / app).rglob("*.py") if "migrations" not in path.parts]
    packages = {path.parent for path in found}
    return [path for path in [*found, *packages] if not path.stem.startswith("__")]


@pytest.mark.parametrize("app", APPS)
def test_module_names_use_words_of_the_field(app):
    unknown = {
        str(path.relative_to(ROOT)): words
        for path in modules(app)
        if (words := {word for word in words_of(path) if not singulars(word) & WORDS})
    }
    assert not unknown, f"each word needs a row in {PAGE.relative_to(ROOT)}"


def test_every_word_of_the_list_is_used():
    used = {
        single
        for app in APPS
        for path in modules(app)
        for word in words_of(path)
        for single in singulars(word)
    }
    assert used >= WORDS
