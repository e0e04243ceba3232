"""What is installed is pinned by hash, and no file says from where."""

import json
import re
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, PackagePath, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([a-z0-9.-]+)(?:\[[a-z, -]+\])?==(\S+)", re.MULTILINE)


def pins(kind: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / "requirements" / f"{kind}.txt").read_text("utf-8")))


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=; ]", line, maxsplit=1)[0].lower() for line in requirements}


FILES = sorted(path.name for path in (ROOT / "requirements").iterdir())
KINDS = [name.removesuffix(".txt") for name in FILES if name.endswith(".txt")]
BESIDE = {"newest", "peers"}  # neither in `dev` nor in `all`
LARGE = {"anthropic", "google-genai", "mcp", "openai", "playwright", "pydantic-ai-slim", "psycopg"}


@pytest.mark.parametrize("name", FILES)
def test_requirements_name_no_index_and_no_address(name):
    lines = (ROOT / "requirements" / name).read_text("utf-8").splitlines()
    said = [line for line in lines if not line.lstrip().startswith("#")]
    assert said
    assert [
        line for line in said if re.search(r"://|--(extra-)?index|--find-links|^-i | @ ", line)
    ] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_requirement_has_a_hash(kind):
    text = re.sub(
        r"^ *#.*\n",
        "",
        (ROOT / "requirements" / f"{kind}.txt").read_text("utf-8"),
        flags=re.MULTILINE,
    )
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert len(blocks) >= len(pins(kind)) > 0
    assert [
        block for block in blocks if not PIN.match(block) or "--hash=sha256:" not in block
    ] == []


def test_an_extra_is_pinned_where_it_is_needed():
    """Else pip takes a newer version for the extra once there is one, and that has no hash."""
    assert "google-auth[requests]==" in (ROOT / "requirements" / "google.txt").read_text("utf-8")
    assert "--no-strip-extras" in (ROOT / "Makefile").read_text("utf-8")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in BESIDE])
def test_the_site_runs_in_the_tests_on_the_versions_that_are_installed_for_it(kind):
    assert (ROOT / "requirements" / f"{kind}.in").exists()
    assert pins(kind).items() <= pins("dev").items()


def test_all_holds_whatever_the_site_can_use_but_the_browser():
    for kind in set(KINDS) - {"browser", "dev", "docs", "test", "uv", *BESIDE}:
        assert pins(kind).items() <= pins("all").items()


def test_the_default_has_no_vendor_and_nothing_for_several_processes():
    assert LARGE.isdisjoint(pins("base"))
    assert pins("base").keys() & {"redis", "psycopg"} == set()
    assert pins("dev").keys() >= LARGE


def test_the_quick_tests_need_no_vendor():
    assert (LARGE - {"psycopg"}).isdisjoint(pins("test"))


def test_the_default_is_small():
    """What `make run` installs without extras takes less than 150 MB."""
    total = 0
    for name in pins("base"):
        with suppress(PackageNotFoundError):  # one for other systems
            files = distribution(name).files or []
            total += sum(path.stat().st_size for path in map(located, files) if path.is_file())
    assert 10_000_000 < total < 150_000_000


def located(file: PackagePath) -> Path:
    return Path(str(file.locate()))


def test_the_newest_django_that_the_package_allows_is_tried():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [allowed] = [line for line in project["dependencies"] if line.startswith("Django>=")]
    below = re.search(r"<(\d+)\.(\d+)", allowed)
    major, minor = map(int, pins("newest")["django"].split(".")[:2])
    assert (major, minor + 1) == (int(below[1]), int(below[2]))
    for version in (pins("base")["django"], pins("newest")["django"]):
        number = ".".join(version.split(".")[:2])
        assert f"Framework :: Django :: {number}" in project["classifiers"]


def test_what_the_package_asks_for_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [line for extra in project["optional-dependencies"].values() for line in extra]
    assert names(project["dependencies"]) <= pins("base").keys()
    # The browser is large and few sites want it: it is an extra by itself.
    assert names(extras) - {"playwright"} <= pins("all").keys()
    assert names(project["optional-dependencies"]["all"]) <= pins("all").keys()
    assert names(extras) <= pins("dev").keys()


def test_the_lock_of_the_javascript_tools_names_no_registry():
    lock = json.loads((ROOT / "package-lock.json").read_text("utf-8"))
    packages = [entry for path, entry in lock["packages"].items() if path]
    assert packages
    assert [entry for entry in packages if "resolved" in entry or "integrity" not in entry] == []
