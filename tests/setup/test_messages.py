"""Words that people read. None escapes gettext, and each has its German one, in the source tree and in the wheel."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import messages

ROOT = Path(__file__).resolve().parents[2]
CATALOGUES = [
    (package, path) for package in messages.SOURCES for path in messages.catalogues(package)
]

# What operators and programs read stays English: logs, system checks, the command line, metrics, the protocol.
FOR_OPERATORS = {
    "broadcast.py",
    "checks.py",
    "conf.py",
    "health.py",
    "markdown_rules.py",
    "server.py",
    "socket_metrics.py",
    "syntax_highlighting.py",
}
MARKS = {*messages._KEYWORDS, "getLogger", "create_task"}
LOGGING = {"debug", "info", "warning", "error", "exception", "critical"}
TWO_WORDS = re.compile(r"^[^<]*[A-Za-z’']{2,} [A-Za-z’']{2,}[^<]*$")
SHOWN = {
    "description",
    "verbose_name",
    "verbose_name_plural",
    "help_text",
    "label",
    "short_description",
}
KEYS = {"Alt", "Ctrl", "Delete", "Enter", "Esc", "Shift"}


def test_every_language_has_a_catalogue_for_each_package():
    languages = {path.parent.parent.name for _package, path in CATALOGUES}
    assert "de" in languages
    assert len(CATALOGUES) == len(languages) * len(messages.SOURCES)


@pytest.mark.parametrize(("package", "path"), CATALOGUES, ids=lambda it: str(it)[-60:])
def test_a_catalogue_has_exactly_the_messages_of_the_sources_all_translated(package, path):
    found = list(messages.problems(package, path))
    assert found == [], "run `make messages`, then translate what it names"


@pytest.mark.parametrize(
    ("msgid", "msgstr", "problem"),
    [
        ("%(n)d calls", "%(n)s Aufrufe", "other placeholders"),
        ("{n} calls", "Aufrufe", "other placeholders"),
        ("calls", "", "not translated"),
    ],
)
def test_a_faulty_translation_is_named(tmp_path, monkeypatch, msgid, msgstr, problem):
    catalog = messages.Catalog(locale="de")
    catalog.add(msgid, msgstr)
    path = tmp_path / "de" / "LC_MESSAGES" / "django.po"
    path.parent.mkdir(parents=True)
    messages.write(path, catalog)
    monkeypatch.setattr(messages, "template", lambda _package: catalog)
    [found] = messages.problems("webchat", path)
    assert found.startswith(problem)
    assert msgid in found
    path.with_suffix(".po").write_bytes(messages.as_po(catalog).replace(b"msgstr", b"msgstr", 1))
    fuzzy = messages.as_po(catalog).replace(
        b'\nmsgid "' + msgid.encode(), b'\n#, fuzzy\nmsgid "' + msgid.encode()
    )
    path.write_bytes(fuzzy)
    assert "not translated" in next(messages.problems("webchat", path))


def test_messages_are_found_wherever_they_stand_in_the_source(tmp_path, monkeypatch):
    monkeypatch.setattr(messages, "ROOT", tmp_path)
    (tmp_path / "webchat").mkdir()
    source = """
text = f"{_('in a text')} {ngettext('one', 'many', n)}"
text = translation.pgettext("verb", "in " "parts")
text = _(name) + _(f"{name}") + other("no message")
"""
    (tmp_path / "webchat" / "views.py").write_text(source, "utf-8")
    found = [(message.context, message.id) for message in messages.template("webchat")]
    assert found[1:] == [(None, "in a text"), (None, ("one", "many")), ("verb", "in parts")]


def modules() -> Iterator[Path]:
    for folder in (
        "webchat",
        "turns/models",
        "console",
        "governance/models",
    ):
        for path in sorted((ROOT / folder).rglob("*.py")):
            inner = {"migrations", "protocol", "management"} & set(path.parts)
            if not inner and path.name not in FOR_OPERATORS:
                yield path


def escaped(path: Path) -> Iterator[str]:
    """Return the texts of a module that look like words for people and are not marked for translation."""
    tree = ast.parse(path.read_text("utf-8"))
    marked: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            marked.add(node.value)  # a docstring
        if isinstance(node, ast.Call) and _name(node.func) in MARKS | LOGGING:
            marked.update(ast.walk(node))
        if isinstance(node, ast.Call):
            yield from (
                f"{path.name}: {keyword.value.value!s}"
                for keyword in node.keywords
                if keyword.arg in SHOWN
                and isinstance(keyword.value, ast.Constant)
                and re.match(r"\w", str(keyword.value.value or ""))
                and _name(node.func) not in {"NinjaAPI", "Schema"}
            )
    for node in ast.walk(tree):
        text = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and node not in marked and TWO_WORDS.match(text):
            yield f"{path.name}: {text}"


def _name(function: ast.expr) -> str:
    return getattr(function, "id", getattr(function, "attr", ""))


def test_no_words_of_the_page_the_admin_or_an_error_escape_translation():
    found = {text for path in modules() for text in escaped(path)}
    assert found == {
        # of the pages that describe the API, for programmers
        "api.py: The text",
        "api.py: Watch, time out and cancel what an agent does. Errors are `{error, code}`.",
        "api.py: default-src 'none'; sandbox",
        "api.py: The file",
        "webchat.py: {% turnkeeper_chat %} needs the request: render the page with it, and add "
        "django.template.context_processors.request to the context processors.",
        # a header
        # SQL
        "group_ids.py: CASE WHEN %(expressions)s ~ '",
        "group_ids.py: ' THEN CAST(%(expressions)s AS uuid) END",
        "group_ids.py: CAST(%(expressions)s AS text)",
        # told by its type: webchat.validation_messages
        "operations.py: give either timeout_ms or extend_ms",
    }


@pytest.mark.parametrize(
    "line",
    [
        'raise Refused(403, "denied", "You do not have permission to do this.")',
        'admin.display(description="finished")',
        'name = CharField("the name", help_text="Once.")',
        'text = f"{count} calls were cut"',
    ],
)
def test_words_that_escape_are_found(tmp_path, line):
    path = tmp_path / "views.py"
    path.write_text(f'"""A docstring of some words."""\n{line}\n', "utf-8")
    assert list(escaped(path))
    path.write_text('logger.warning("A fact of some words")\nlabel = _("Some words")\n', "utf-8")
    assert list(escaped(path)) == []


def in_template(path: Path) -> Iterator[str]:
    """Return the words of a template that stand outside of the tags for translation."""
    text = path.read_text("utf-8")
    text = re.sub(r"{%\s*comment.*?endcomment\s*%}|{#.*?#}", "", text, flags=re.DOTALL)
    text = re.sub(
        r"{%\s*blocktrans(?:late)?\b.*?{%\s*endblocktrans(?:late)?\s*%}", "", text, flags=re.DOTALL
    )
    text = re.sub(r"<(script|style|svg)\b.*?</\1>", "", text, flags=re.DOTALL)
    yield from re.findall(
        r'(?<![\w-])(?:aria-label|title|placeholder|alt)="([^"{]*[A-Za-z]{2}[^"{]*)"', text
    )
    body = re.sub(r"<[^>]*>", "\n", re.sub(r"{%.*?%}|{{.*?}}", "\n", text, flags=re.DOTALL))
    for line in re.sub(r'&\w+;|"? ?data-[\w-]+="', " ", body).splitlines():
        if re.search(r"[A-Za-z]{2}", line):
            yield line.strip()


def test_no_words_of_a_template_escape_translation():
    folders = (ROOT / "templates", ROOT / "config" / "templates")
    files = [path for folder in folders for path in sorted(folder.rglob("*.html"))]
    assert len(files) > 20
    found = {(path.name, words) for path in files for words in in_template(path)}
    allowed = {
        *KEYS,
        "Turnkeeper",
        "+30 s",
        "+5 min",
        "colM",
        "flex",
        "is-centred",
        "is-chat",
    }  # names, keys, CSS classes
    assert {each for each in found if each[1].removeprefix("· ") not in allowed} == set()


def test_the_scripts_have_no_words_of_their_own():
    scripts = sorted((ROOT / "static" / "webchat" / "js").rglob("*.js"))
    files = [path for path in scripts if "vendor" not in path.parts]
    assert files
    found = []
    for path in files:
        for line in path.read_text("utf-8").splitlines():
            is_comment = line.lstrip().startswith(("*", "/*", "//"))
            if (
                not is_comment
                and "new Error(" not in line
                and re.search(r'["`][A-Z][a-z’]+ [a-z]+', line)
            ):
                found.append(f"{path.name}: {line.strip()}")
    assert found == []
