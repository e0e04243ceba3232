"""Brings the catalogues of translations up to date with the sources: `make messages`. Needs no program of gettext.

Each package has its own (`<package>/locale/<language>/LC_MESSAGES/django.po`), with the messages of its code and of its
templates. A new message is left empty, for a person; one that no source has any more is removed.
"""

import ast
import io
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_python
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parents[1]
SOURCES: Mapping[str, tuple[str, ...]] = {
    "governance": ("governance", "templates/admin/governance"),
    "turns": ("turns", "templates/admin/turns"),
    "webchat": ("webchat", "templates/webchat"),
    "config": ("config",),
}
_CONTEXT: tuple[Any, ...] = ((1, "c"), 2)
_KEYWORDS: dict[str, tuple[Any, ...] | None] = {
    **dict.fromkeys(("_", "gettext", "gettext_lazy", "gettext_noop")),
    **dict.fromkeys(("ngettext", "ngettext_lazy"), (1, 2)),
    **dict.fromkeys(("pgettext", "pgettext_lazy"), _CONTEXT),
    **dict.fromkeys(("npgettext", "npgettext_lazy"), ((1, "c"), 2, 3)),
}
_PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]|\{\w+\}")
_DATE = datetime(2026, 1, 1, tzinfo=UTC)  # a day in the file would change it with every run


def main() -> int:
    """Write every catalogue, and say what is not translated."""
    missing = 0
    for package in SOURCES:
        for path in catalogues(package):
            made = update(read(path), template(package))
            write(path, made)
            empty = [message for message in made if message.id and not is_translated(message)]
            missing += len(empty)
            print(f"{path.relative_to(ROOT)}: {len(made)} messages, {len(empty)} not translated")
            for message in empty:
                print(f"  {_forms(message.id)[0]!r}")
    return 1 if missing else 0


def catalogues(package: str) -> list[Path]:
    """Return the catalogues of a package, one for each language."""
    return sorted((ROOT / package / "locale").glob("*/LC_MESSAGES/django.po"))


def template(package: str) -> Catalog:
    """Return the messages that a package's sources hold now, without translations."""
    found = Catalog(charset="utf-8", creation_date=_DATE)
    for path in _files(package):
        for line, function, given in _extract(path):
            texts, context = _texts_of(function, given)
            if texts:
                found.add(texts, locations=[(str(path.relative_to(ROOT)), line)], context=context)
    return found


def read(path: Path) -> Catalog:
    """Return a catalogue from its file."""
    with path.open("rb") as file:
        return read_po(file, locale=path.parent.parent.name)


def update(known: Catalog, current: Catalog) -> Catalog:
    """Return a catalogue with exactly the current messages, and the translations that it has."""
    known.update(current, no_fuzzy_matching=True)
    known.obsolete.clear()
    known.creation_date = known.revision_date = _DATE
    known.project, known.version, known.fuzzy = "django-turnkeeper", "", False
    known.header_comment = "# Translations of django-turnkeeper. `make messages` writes this file."
    known.msgid_bugs_address = known.last_translator = known.language_team = ""
    return known


def write(path: Path, catalog: Catalog) -> None:
    """Write a catalogue for people (.po), and what Django reads of it (.mo)."""
    for suffix, content in ((".po", as_po(catalog)), (".mo", as_mo(catalog))):
        path.with_suffix(suffix).write_bytes(content)


def as_po(catalog: Catalog) -> bytes:
    """Return a catalogue for people."""
    file = io.BytesIO()
    write_po(file, catalog, width=0, sort_by_file=True, include_lineno=False)
    return file.getvalue()


def as_mo(catalog: Catalog) -> bytes:
    """Return a catalogue for Django."""
    file = io.BytesIO()
    write_mo(file, catalog)
    return file.getvalue()


def problems(package: str, path: Path) -> Iterator[str]:
    """Say what is wrong with a catalogue, a line for each message."""
    catalog, current = read(path), template(package)
    known = {_key(message) for message in catalog if message.id}
    wanted = {_key(message) for message in current if message.id}
    yield from (f"missing: {each}" for each in sorted(map(str, wanted - known)))
    yield from (f"in no source: {each}" for each in sorted(map(str, known - wanted)))
    for message in catalog:
        if message.id and not is_translated(message):
            yield f"not translated: {_key(message)}"
        elif message.id and not _agrees(message):
            yield f"other placeholders: {_key(message)}"
    with path.with_suffix(".mo").open("rb") as file:
        compiled = read_mo(file)
    if _strings(compiled) != _strings(catalog):
        yield "the .mo is older than the .po"


def is_translated(message: Message) -> bool:
    """Return whether every form of a message has a text that nobody has to look at again."""
    return not message.fuzzy and all(_forms(message.string))


def _files(package: str) -> Iterator[Path]:
    for source in SOURCES[package]:
        for path in sorted((ROOT / source).rglob("*")):
            if path.suffix in {".py", ".html"} and "migrations" not in path.parts:
                yield path


def _extract(path: Path) -> Iterator[tuple[int, str, list[Any]]]:
    """Return each call of a function of gettext: its line, the function, the arguments; None for what is no literal."""
    text = path.read_text("utf-8")
    if path.suffix == ".html":
        yield from _extract_from_template(text)
        return
    # Not by tokens: those of an f-string differ between versions of Python.
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        if (name := _name_of(call.func)) in _KEYWORDS:
            values = (getattr(argument, "value", None) for argument in call.args)
            yield call.lineno, name, [it if isinstance(it, str) else None for it in values]


def _extract_from_template(text: str) -> Iterator[tuple[int, str, list[Any]]]:
    # Only here: reading templates needs Django, and Django a moment.
    from django.utils.translation.template import templatize  # noqa: PLC0415

    text = "\n".join(line.strip() for line in templatize(text).splitlines())
    keywords: Any = list(_KEYWORDS)
    found: Any = extract_python(io.BytesIO(text.encode()), keywords, [], {})
    for line, function, said, _comments in found:
        yield line, function, list(said) if isinstance(said, tuple) else [said]


def _name_of(function: ast.expr) -> str:
    return str(getattr(function, "id", getattr(function, "attr", "")))


def _texts_of(function: str, given: list[Any]) -> tuple[Any, str | None]:
    """Return a message, or its two forms, and its context; nothing where it is no literal."""
    context = given.pop(0) if "pgettext" in function else None
    given = given[: 2 if "ngettext" in function or "npgettext" in function else 1]
    if not given or not all(isinstance(text, str) and text for text in given):
        return None, None
    return (tuple(given) if len(given) == 2 else given[0]), context


def _agrees(message: Message) -> bool:
    """Whether a translation names what the message names. The form for one thing need not name the number."""
    ids = _forms(message.id)
    whole = _names(ids[-1])
    forms = [_names(text) for text in _forms(message.string)]
    return forms[-1] == whole and all(form in (whole, _names(ids[0])) for form in forms)


def _names(text: str) -> list[str]:
    return sorted(_PLACEHOLDER.findall(text))


def _strings(catalog: Catalog) -> dict[Any, Any]:
    """Return what Django is given: what is not translated stays in the source's language."""
    translated = (message for message in catalog if message.id and is_translated(message))
    return {_key(message): _forms(message.string) for message in translated}


def _forms(texts: Any) -> tuple[str, ...]:
    return tuple(texts) if isinstance(texts, (list, tuple)) else (texts,)


def _key(message: Message) -> tuple[str | None, str]:
    return message.context, _forms(message.id)[0]


if __name__ == "__main__":
    sys.exit(main())
