"""What `make run` and `make test` install: shown while it happens, explained where it fails, kept afterwards."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support import run_program

ROOT = Path(__file__).resolve().parents[2]


class Checkout:
    """A repository with requirements of its own, and the wheels for them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for folder in ("scripts", "requirements", "wheels"):
            (directory / folder).mkdir()
        shutil.copy(ROOT / "scripts" / "environment", directory / "scripts")
        self.require_all()

    def require_all(self) -> None:
        """Pin what every test begins with."""
        for kind, name in (("base", "first"), ("more", "second"), ("dev", "third")):
            self.require(kind, f"tk-{name}", version="1.0")
        self.require("newest", "tk-third", version="4.0")

    def require(self, kind: str, name: str, *, version: str) -> None:
        """Pin a package, and make it."""
        package = name.replace("-", "_")
        wheel = self.directory / "wheels" / f"{package}-{version}-py3-none-any.whl"
        info = f"{package}-{version}.dist-info"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{package}.py", f"version = {version!r}\n")
            archive.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
            archive.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{info}/RECORD", "")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        folder = self.directory / "requirements"
        (folder / f"{kind}.in").write_text(f"{name}\n", "utf-8")
        (folder / f"{kind}.txt").write_text(
            f"{name}=={version} \\\n    --hash=sha256:{digest}\n", "utf-8"
        )

    def make(self, kind: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the script as make does."""
        own = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "PYTHON": sys.executable,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.directory / "wheels"),
            "PIP_CONFIG_FILE": os.devnull,
        }
        return run_program(
            [self.directory / "scripts" / "environment", kind], env=own | environment
        )

    def version_of(self, package: str, *, venv: str = ".venv") -> str:
        """Return what is installed; an empty text if nothing is."""
        asked = subprocess.run(
            [
                self.directory / venv / "bin" / "python",
                "-c",
                f"print(__import__({package!r}).version)",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        return asked.stdout.strip()


@pytest.fixture(scope="module")
def pattern(tmp_path_factory):
    """A checkout whose environment is made, which takes long."""
    made = Checkout(tmp_path_factory.mktemp("pattern"))
    said = made.make("base")
    assert said.returncode == 0, said.stderr
    assert "Making .venv" in said.stdout
    assert "Installing requirements/base.txt: up to 1 packages ..." in said.stdout
    assert "with pip, which takes longer, because uv could not be installed" in said.stdout
    assert "  writing " in said.stdout
    return made


@pytest.fixture
def checkout(pattern):
    """The same for each test, with nothing but the default installed."""
    yield pattern
    for file in pattern.directory.glob(".venv/requirements-*.txt"):
        file.unlink()
    for file in (*pattern.directory.glob(".venv/bin/uv"), *pattern.directory.glob("*/uv.txt")):
        file.unlink()
    pattern.require_all()


def test_what_is_installed_is_left_alone_without_a_word(checkout):
    assert checkout.make("base").returncode == 0
    again = checkout.make("base")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert checkout.version_of("tk_first") == "1.0"


def test_an_extra_comes_on_top_stays_and_is_kept_as_new_as_the_rest(checkout):
    said = checkout.make("base", EXTRAS="more")
    lines = said.stdout.partition("Installing requirements/more.txt: up to 1 packages")[2]
    assert "  1 tk_second-1.0" in lines
    assert "  writing 1 packages" in lines
    assert checkout.version_of("tk_second") == "1.0"
    checkout.require("more", "tk-second", version="2.0")
    assert "Installing requirements/more.txt" in checkout.make("base").stdout
    assert checkout.version_of("tk_second") == "2.0"


def test_the_tools_of_the_developers_hold_everything_else(checkout):
    assert checkout.make("dev").returncode == 0
    assert checkout.make("base", EXTRAS="more,base").stdout == ""
    checkout.require("dev", "tk-third", version="3.0")
    assert "requirements/dev.txt" not in checkout.make("base").stdout


def install_uv(directory: Path) -> None:
    """Put uv where it would be after its own installation, for which there is no wheel here."""
    (directory / ".venv" / "bin" / "uv").symlink_to(Path(sys.executable).with_name("uv"))
    for file in ("requirements/uv.txt", ".venv/requirements-uv.txt"):
        (directory / file).write_text("uv\n", "utf-8")


def test_uv_takes_packages_from_where_pip_is_told_to(checkout):
    install_uv(checkout.directory)
    checkout.require("more", "tk-second", version="3.0")
    said = checkout.make("base", EXTRAS="more")
    assert said.returncode == 0, said.stderr
    assert "tk-second==3.0" in said.stderr
    assert "pip" not in said.stdout
    assert checkout.version_of("tk_second") == "3.0"


def test_where_uv_fails_pip_says_why(checkout):
    install_uv(checkout.directory)
    checkout.require("more", "tk-second", version="4.0")
    shutil.rmtree(checkout.directory / "wheels")
    (checkout.directory / "wheels").mkdir()
    answer = checkout.make("base", EXTRAS="more")
    assert answer.returncode == 1
    assert "with pip, which explains failures better, because uv failed" in answer.stdout
    assert "knows no version of tk-second at all" in answer.stderr


def test_the_newest_django_stands_in_a_place_of_its_own_and_wants_a_newer_python(checkout):
    answer = checkout.make("newest")
    if sys.version_info < (3, 12):
        assert answer.returncode == 3
        assert answer.stderr.startswith("Python 3.12 or newer is needed and was not found.")
        return
    assert answer.returncode == 0, answer.stderr
    assert checkout.version_of("tk_third", venv=".venv-newest") == "4.0"
    again = checkout.make("newest")
    assert (again.returncode, again.stdout) == (0, "")
    checkout.require("dev", "tk-third", version="3.0")  # which takes the place of the newest one
    assert checkout.make("newest").returncode == 0
    assert checkout.version_of("tk_third", venv=".venv-newest") == "4.0"


def test_an_extra_that_does_not_exist_is_named_with_those_that_do(checkout):
    answer = checkout.make("base", EXTRAS="mroe")
    assert answer.returncode == 1
    assert answer.stderr == "There is no extra mroe. There are: base dev more newest.\n"


def test_an_index_that_cannot_be_reached_is_said_in_a_line_of_its_own(checkout):
    answer = checkout.make(
        "base",
        EXTRAS="more",
        PIP_NO_INDEX="",
        PIP_FIND_LINKS="",
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_RETRIES="1",
    )
    assert answer.returncode == 1
    assert "the package index does not answer; trying again" in answer.stdout
    first = answer.stderr.splitlines()[0]
    assert first.startswith("The package index could not be reached: NewConnectionError")
    assert "PIP_INDEX_URL" in answer.stderr


class OutOfOrder(BaseHTTPRequestHandler):
    """Answers for the package index, and not as it would."""

    def do_GET(self) -> None:
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_an_index_that_answers_with_errors_is_said_in_a_line_of_its_own(checkout):
    with HTTPServer(("127.0.0.1", 0), OutOfOrder) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}/simple"
        own = {"PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": index, "PIP_RETRIES": "0"}
        answer = checkout.make("base", EXTRAS="more", **own)
        server.shutdown()
    assert answer.returncode == 1
    first = answer.stderr.splitlines()[0]
    assert first.startswith("The package index knows no version of tk-second at all.")
    assert "PIP_INDEX_URL" in answer.stderr


def test_a_package_that_is_not_what_was_pinned_is_refused_in_pips_words(checkout):
    checkout.require("base", "tk-first", version="9.0")
    file = checkout.directory / "requirements" / "base.txt"
    file.write_text(file.read_text("utf-8").replace("sha256:", "sha256:0000")[:-5] + "\n", "utf-8")
    answer = checkout.make("base")
    assert answer.returncode == 1
    assert "ERROR" in answer.stderr
    assert "index could not be reached" not in answer.stderr
    assert "The whole output of pip is in .venv/install.log." in answer.stderr
