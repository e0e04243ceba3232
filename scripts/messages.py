"""Updates the translation catalogues from the sources (`make messages`), without the gettext programs.

Each package has a catalogue for each language (`<package>/locale/<language>/LC_MESSAGES/django.po`), with the messages
of its code and templates. New messages stay untranslated until a translator fills them in. Messages that no source
contains any longer are removed.
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
    "console": ("console", "templates/console"),
    "governance": ("governance",),
    "turns": ("turns",),
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
_DATE = datetime(2026, 1, 1, tzinfo=UTC)  # the current date would change the file with every run


def main() -> int:
    """Write every catalogue, and print the untranslated messages. Return 1 if there are any."""
    missing = 0
    for package in SOURCES:
        for path in catalogues(package):
            catalog = update(read(path), template(package))
            write(path, catalog)
            empty = [message for message in catalog if message.id and not is_translated(message)]
            missing += len(empty)
            print(f"{path.relative_to(ROOT)}: {len(catalog)} messages, {len(empty)} not translated")
            for message in empty:
                print(f"  {_forms(message.id)[0]!r}")
    return 1 if missing else 0


def catalogues(package: str) -> list[Path]:
    """Return the catalogues of a package, one for each language."""
    return sorted((ROOT / package / "locale").glob("*/LC_MESSAGES/django.po"))


def template(package: str) -> Catalog:
    """Return the messages of a package's current sources, without translations."""
    catalog = Catalog(charset="utf-8", creation_date=_DATE)
    for path in _files(package):
        for line, function, arguments in _extract(path):
            texts, context = _texts_of(function, arguments)
            if texts:
                catalog.add(texts, locations=[(str(path.relative_to(ROOT)), line)], context=context)
    return catalog


def read(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_po(file, locale=path.parent.parent.name)


def update(catalog: Catalog, current: Catalog) -> Catalog:
    """Update a catalogue to exactly the current messages, keep their existing translations, and return it."""
    catalog.update(current, no_fuzzy_matching=True)
    catalog.obsolete.clear()
    catalog.creation_date = catalog.revision_date = _DATE
    catalog.project, catalog.version, catalog.fuzzy = "django-turnkeeper", "", False
    catalog.header_comment = (
        "# Translations of django-turnkeeper. `make messages` writes this file."
    )
    catalog.msgid_bugs_address = catalog.last_translator = catalog.language_team = ""
    return catalog


def write(path: Path, catalog: Catalog) -> None:
    """Write a catalogue as a .po file for people and as a .mo file for Django."""
    for suffix, content in ((".po", as_po(catalog)), (".mo", as_mo(catalog))):
        path.with_suffix(suffix).write_bytes(content)


def as_po(catalog: Catalog) -> bytes:
    """Return a catalogue in the format that translators edit."""
    file = io.BytesIO()
    write_po(file, catalog, width=0, sort_by_file=True, include_lineno=False)
    return file.getvalue()


def as_mo(catalog: Catalog) -> bytes:
    """Return a catalogue in the format that Django reads."""
    file = io.BytesIO()
    write_mo(file, catalog)
    return file.getvalue()


def problems(package: str, path: Path) -> Iterator[str]:
    """Yield the problems of a catalogue, one line per message."""
    catalog, current = read(path), template(package)
    keys = {_key(message) for message in catalog if message.id}
    source_keys = {_key(message) for message in current if message.id}
    yield from (f"missing: {each}" for each in sorted(map(str, source_keys - keys)))
    yield from (f"in no source: {each}" for each in sorted(map(str, keys - source_keys)))
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
    """Return whether every form of a message has a text that is not marked as fuzzy."""
    return not message.fuzzy and all(_forms(message.string))


def _files(package: str) -> Iterator[Path]:
    for source in SOURCES[package]:
        for path in sorted((ROOT / source).rglob("*")):
            if path.suffix in {".py", ".html"} and "migrations" not in path.parts:
                yield path


def _extract(path: Path) -> Iterator[tuple[int, str, list[Any]]]:
    """Yield the line, function name and arguments of each gettext call.

    An argument that is not a literal string is None.
    """
    text = path.read_text("utf-8")
    if path.suffix == ".html":
        yield from _extract_from_template(text)
        return
    # The syntax tree is used, because the tokens of an f-string differ between versions of Python.
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        if (name := _name_of(call.func)) in _KEYWORDS:
            values = (getattr(argument, "value", None) for argument in call.args)
            yield call.lineno, name, [value if isinstance(value, str) else None for value in values]


def _extract_from_template(text: str) -> Iterator[tuple[int, str, list[Any]]]:
    # Imported here because only templates need Django, which is slow to import.
    from django.utils.translation.template import templatize  # noqa: PLC0415

    text = "\n".join(line.strip() for line in templatize(text).splitlines())
    keywords: Any = list(_KEYWORDS)
    calls: Any = extract_python(io.BytesIO(text.encode()), keywords, [], {})
    for line, function, arguments, _comments in calls:
        yield line, function, list(arguments) if isinstance(arguments, tuple) else [arguments]


def _name_of(function: ast.expr) -> str:
    return str(getattr(function, "id", getattr(function, "attr", "")))


def _texts_of(function: str, arguments: list[Any]) -> tuple[Any, str | None]:
    """Return a call's message, or its singular and plural forms, and its context.

    If a text is not a literal, return None for both.
    """
    context = arguments.pop(0) if "pgettext" in function else None
    texts = arguments[: 2 if "ngettext" in function or "npgettext" in function else 1]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        return None, None
    return (tuple(texts) if len(texts) == 2 else texts[0]), context


def _agrees(message: Message) -> bool:
    """Return whether a translation has the placeholders of its message. The singular form may omit the number."""
    ids = _forms(message.id)
    whole = _names(ids[-1])
    forms = [_names(text) for text in _forms(message.string)]
    return forms[-1] == whole and all(form in (whole, _names(ids[0])) for form in forms)


def _names(text: str) -> list[str]:
    return sorted(_PLACEHOLDER.findall(text))


def _strings(catalog: Catalog) -> dict[Any, Any]:
    """Return the translated messages by key. Django shows the others in the source language."""
    translated = (message for message in catalog if message.id and is_translated(message))
    return {_key(message): _forms(message.string) for message in translated}


def _forms(texts: Any) -> tuple[str, ...]:
    return tuple(texts) if isinstance(texts, (list, tuple)) else (texts,)


def _key(message: Message) -> tuple[str | None, str]:
    return message.context, _forms(message.id)[0]


if __name__ == "__main__":
    sys.exit(main())
