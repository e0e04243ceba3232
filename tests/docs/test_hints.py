"""What the installed package says names no file that only the repository has."""

import ast
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

MODULES = [
    path
    for package in ("governance", "turns", "webchat")
    for path in sorted((ROOT / package).rglob("*.py"))
]
MADE_FOR_THE_REPOSITORY = {
    ROOT / "webchat" / "protocol" / "schema_docs.py"
}  # writes a page of the documents


def texts_of(module: Path) -> list[str]:
    """Return the module's texts without its docstrings, those of settings included."""
    tree = ast.parse(module.read_text("utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_points_to_a_page_that_is_not_installed(module):
    if module in MADE_FOR_THE_REPOSITORY:
        return
    assert [text for text in texts_of(module) if "docs/" in text or ".md" in text] == []
