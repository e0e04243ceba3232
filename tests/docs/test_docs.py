"""The documents are true: links lead somewhere, code compiles and runs, names are those of the code."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from governance import CallStatus, CancelReason, CancelSource, Disposition
from scripts import settings_docs
from tests.docs.pages import (
    DOCS,
    PAGES,
    ROOT,
    anchors_of,
    first_cells,
    links_of,
    python_blocks,
    section,
    text_of,
)
from tests.support import run_program
from turns.core.turns import TurnStatus

PACKAGES = ("governance", "turns", "webchat")
SOURCES = {
    path: path.read_text("utf-8")
    for package in (*PACKAGES, "config", "console")
    for path in (ROOT / package).rglob("*.py")
}
GLOSSARY = DOCS / "glossary.md"
REQUIREMENTS = DOCS / "requirements.md"


def found_in_code(pattern: str) -> set[str]:
    return {match for source in SOURCES.values() for match in re.findall(pattern, source)}


def test_links_lead_somewhere():
    broken = [
        str(link)
        for page in PAGES
        for link in links_of(page)
        if not link.target.exists() or (link.anchor and link.anchor not in anchors_of(link.target))
    ]
    assert broken == []


def test_every_page_can_be_reached_from_the_index():
    seen: set[Path] = set()
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        waiting += [link.target for link in links_of(page)]
    assert set(DOCS.rglob("*.md")) <= seen


def test_python_in_the_pages_compiles(subtests: pytest.Subtests):
    for page in PAGES:
        for number, block in enumerate(python_blocks(page), 1):
            name = f"{page.relative_to(ROOT)}, block {number}"
            with subtests.test(name):
                compile(block, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize(("page", "app"), settings_docs.PAGES.items(), ids=PACKAGES)
def test_every_setting_has_the_line_that_its_field_declares(page, app):
    text = text_of(ROOT / page)
    assert settings_docs.refresh(text, app) == text, "run: python -m scripts.settings_docs"
    assert text.count(f"\n| `{app.PREFIX}") == len(app.DECLARED)


PUBLIC_MODULES = (
    "governance",
    "governance.contrib.pydantic_ai",
    "governance.toolbox",
    "turns",
    "turns.selectors",
    "turns.services",
    "turns.testing",
    "turns.testing.hosts",
    "turns.tools",
)


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_the_reference_has_every_public_name(module):
    """`make docs` fails where a name of the reference does not exist."""
    directives = [
        directive
        for page in (DOCS / "reference").glob("*.md")
        for directive in re.findall(r"^\.\. (?:auto)?\w+:: ([\w.]+)", text_of(page), re.MULTILINE)
    ]
    if module in directives:  # automodule, with all of its names
        return
    [names] = re.findall(
        r"^__all__ = \[(.*?)\]", SOURCES[source_of(module)], re.MULTILINE | re.DOTALL
    )
    assert {f"{module}.{name}" for name in re.findall(r'"(\w+)"', names)} <= set(directives)


def source_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_every_variable_of_the_environment_is_listed():
    settings = "\n".join(
        source for path, source in SOURCES.items() if path.is_relative_to(ROOT / "config")
    )
    read = set(re.findall(r"""env(?:\.\w+)?\(\s*["'](\w+)""", settings))
    listed = set(
        re.findall(r"`([A-Z_]+)`", section(DOCS / "settings.md", "Environment of the site"))
    )
    assert read
    assert read <= listed


def test_every_system_check_is_explained_and_no_other():
    raised = found_in_code(rf"\b((?:console|{'|'.join(PACKAGES)})\.[EWI]\d{{3}})\b")
    explained = {
        check
        for page in (DOCS / "settings").glob("*.md")
        for check in re.findall(
            rf"`((?:console|{'|'.join(PACKAGES)})\.[EWI]\d{{3}})`", text_of(page)
        )
    }
    assert raised
    assert explained == raised


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Statuses of a tool call", CallStatus),
        ("Statuses of a turn", TurnStatus),
    ],
)
def test_the_glossary_has_the_statuses_of_the_code(heading, names):
    assert first_cells(section(GLOSSARY, heading)) == {"Status", *names}


def test_the_glossary_has_the_reasons_sources_and_dispositions_of_the_code():
    told = first_cells(section(GLOSSARY, "Reasons and sources of a cancel"))
    assert told == {"Reason", "Source", *CancelReason, *CancelSource}
    dispositions = re.findall(r"`(\w+)`", section(GLOSSARY, "Dispositions"))
    assert dispositions == list(Disposition)


def test_every_promise_that_the_code_cites_is_listed():
    cited = {
        single
        for group in found_in_code(r"\(((?:[A-HPTV]\d+)(?:, [A-HPTV]\d+)*)\)")
        for single in group.split(", ")
    }
    assert {"T1", "C1", "H1"} <= cited
    assert cited <= first_cells(text_of(REQUIREMENTS))


def test_every_behaviour_and_invariant_that_the_code_cites_is_listed():
    behaviours = found_in_code(r"\bacceptance (\d+)")
    assert behaviours <= first_cells(section(REQUIREMENTS, "Behaviours"))
    invariants = set(
        re.findall(r"^(\d+)\. ", section(DOCS / "architecture.md", "Invariants"), re.MULTILINE)
    )
    assert found_in_code(r"\binvariants? (\d+)") <= invariants


def test_the_tests_that_the_requirements_name_exist():
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", section(REQUIREMENTS, "In both modes"))
    assert named
    for file, beginning in named:
        tests = re.findall(
            r"^def (test_\w+)", text_of(ROOT / "tests" / "faults" / file), re.MULTILINE
        )
        assert any(name == beginning or name.startswith(f"{beginning}_") for name in tests), (
            beginning
        )


def test_the_modules_that_the_architecture_names_exist():
    page = DOCS / "architecture.md"
    cells = re.findall(r"^\| (`[^|]+) \|", section(page, "Components"), re.MULTILINE)
    cells += re.findall(r"^\| [^|]+ \| ([^|]+) \|$", section(page, "Where to look"), re.MULTILINE)
    for cell in cells:
        app = folder = ROOT
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", cell):
            places = [place / name for place in (ROOT, app, folder) if (place / name).exists()]
            assert places, name
            folder = places[0].parent
            app = ROOT / places[0].relative_to(ROOT).parts[0]


def test_every_dependency_has_its_reason():
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    for file in (ROOT / "requirements").glob("*.in"):
        lines = text_of(file).splitlines()
        wanted += [line for line in lines if line and not line.startswith(("#", "-r"))]
    names = {re.match(r"[\w-]+", line)[0].lower() for line in wanted}
    page = text_of(DOCS / "decisions" / "dependencies.md")
    told = {name.lower() for cell in first_cells(page) - {"Package"} for name in cell.split(", ")}
    assert told == names


def test_the_pages_of_settings_are_indexed():
    index = text_of(DOCS / "settings.md")
    for page in (DOCS / "settings").glob("*.md"):
        assert f"(settings/{page.name})" in index


def test_the_example_without_django_runs_and_prints_what_the_page_says(tmp_path):
    [example, *_rest] = python_blocks(DOCS / "howto" / "use-governance-alone.md")
    script = tmp_path / "example.py"
    script.write_text(f"{example}\nimport sys\nassert 'django' not in sys.modules\n", "utf-8")
    run = run_program([sys.executable, str(script)], env={"PYTHONPATH": str(ROOT)})
    assert run.returncode == 0, run.stderr
    first, second, third, last = run.stdout.splitlines()
    assert first.startswith("1 timed_out [TIMEOUT]")
    assert "0.2s" in first
    assert second == "2 succeeded 144"
    assert third.startswith("3 failed")
    assert "n:" in third
    assert last == "not_started"


def test_the_tool_for_an_own_agent_returns_a_value_and_then_the_sentence_for_the_model(tmp_path):
    [tools, *_rest] = python_blocks(DOCS / "howto" / "own-agent.md")
    script = tmp_path / "tools.py"
    script.write_text(tools, "utf-8")
    run = run_program([sys.executable, str(script)], env={"PYTHONPATH": str(ROOT)})
    assert run.returncode == 0, run.stderr
    value, failure = run.stdout.splitlines()
    assert value == "kitchen: 21 degrees"
    assert failure.startswith("[TIMEOUT]")


def test_each_promise_has_its_bound_its_tests_and_what_was_measured():
    tests = {path.name: path for path in (ROOT / "tests" / "faults").glob("test_*.py")}
    named: dict[str, set[str]] = {}
    for line in section(DOCS / "reliability.md", "Promises").splitlines():
        if not line.startswith("| **G"):
            continue
        promise, bound, shown_by, measured = line.strip("| ").split(" | ")
        assert bound, line
        assert measured, line
        number = int(re.findall(r"G(\d+)", promise)[0])
        files = re.findall(r"`(test_\w+\.py)`", shown_by)
        assert files, line
        named.setdefault(f"g{number:02}", set()).update(files)
    assert [*named] == [f"g{number:02}" for number in range(1, 13)]
    bearing = {
        number: {name for name, path in tests.items() if f"_{number}_" in text_of(path)}
        for number in named
    }
    assert named == bearing
