"""Writes the table rows in `docs/settings/` from the fields that declare the settings.

`python -m scripts.settings_docs` updates the pages. The row of a new setting is inserted below that of the setting
declared before it.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, get_origin

from governance.app_settings import AppSettings, DeclaredSetting
from governance.conf import GovernanceSettings
from turns.conf import TurnsSettings
from webchat.conf import WebchatSettings

PAGES: dict[Path, type[AppSettings]] = {
    Path("docs/settings/governance.md"): GovernanceSettings,
    Path("docs/settings/turns.md"): TurnsSettings,
    Path("docs/settings/webchat.md"): WebchatSettings,
}
_KINDS: dict[Any, str] = {bool: "bool", float: "seconds", int: "integer", str: "string"}
_SENTENCE_END = re.compile(r"( \([A-Z]\d+\))?\.$")  # including the promise that the code cites


def refresh(page: str, app: type[AppSettings]) -> str:
    """Return a page with an up-to-date row for every declared setting, and without rows for others."""
    lines = page.split("\n")
    sentences = dict(_sentences(app))
    at = next(number for number, line in enumerate(lines) if line.startswith("|---"))
    for name, setting in app.DECLARED.items():
        begin = f"| `{setting.full_name}` |"
        numbers = [number for number, line in enumerate(lines) if line.startswith(begin)]
        if not numbers:
            numbers = [at + 1]
            lines.insert(at + 1, "")
        [at] = numbers
        lines[at] = row_of(setting, sentences[name])
    names = {f"`{setting.full_name}`" for setting in app.DECLARED.values()}
    removed_lines = {
        line
        for line in lines
        if line.startswith(f"| `{app.PREFIX}") and line.split(" | ")[0][2:] not in names
    }
    return "\n".join(line for line in lines if line not in removed_lines)


def row_of(setting: DeclaredSetting, sentence: str) -> str:
    """Return the table row of a setting."""
    kind = setting.rule.kind or _KINDS.get(setting.kind) or _kind_of(setting.kind)
    cells = (
        f"`{setting.full_name}`",
        f"{kind} or `None`" if setting.takes_none else kind,
        f"`{_shown(setting.default)}`",
        sentence,
        f"`{setting.rule.check}`",
    )
    return f"| {' | '.join(cells)} |"


def _sentences(app: type[AppSettings]) -> Iterator[tuple[str, str]]:
    """Yield the name of each field, and its docstring on one line without the final full stop."""
    for holder in app.HOLDERS:
        [definition] = ast.parse(inspect.getsource(holder)).body
        for field, below in pairwise(ast.iter_child_nodes(definition)):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    yield name.upper(), _SENTENCE_END.sub("", " ".join(text.split()))


def _kind_of(kind: Any) -> str:
    if get_origin(kind) is Mapping:
        return "dict"
    return "list of strings" if get_origin(kind) is Sequence else "name"


def _shown(default: Any) -> str:
    text = default.value if isinstance(default, Enum) else default
    return f'"{text}"' if isinstance(text, str) else repr(text)


if __name__ == "__main__":
    for path, settings in PAGES.items():
        path.write_text(refresh(path.read_text("utf-8"), settings), "utf-8")
