"""Projects of somebody else, with the package as it is installed and not the repository behind it."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.servers import free_port
from tests.docs.pages import DOCS, python_blocks
from tests.fork_server import shared_fork_server
from tests.processes import Process, run_python
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync

ROOT = Path(__file__).resolve().parents[2]
PLUG_IN = DOCS / "howto" / "plug-into-your-project.md"
PASSWORD = "correct horse battery"

_MIGRATED: dict[str, bytes] = {}  # the database of each project that was migrated
_BLOCKS = ('    "webchat",', "backends.sqlite3", "admin.site.urls", '"""asgi.py"""')
_LIST = re.compile(r"^(\w+) = \[\n(.*?)^\]", re.MULTILINE | re.DOTALL)
_REST = re.compile(r"^    # … .*$", re.MULTILINE)


class HostProject:
    """A project of somebody else, in a directory of its own."""

    def __init__(self, name: str, *, path: tuple[Path, ...], directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "DJANGO_SETTINGS_MODULE": f"{name}.settings",
            "HOST_PROJECT_DATABASE": str(directory / "db.sqlite3"),
            "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
        }

    def try_to_run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the project."""
        return run_python(*arguments, environment=self.environment, directory=self.directory)

    def run(self, *arguments: str) -> str:
        """Run Python in the project; return what it printed."""
        done = self.try_to_run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def manage(self, *arguments: str) -> str:
        """Run a management command."""
        return self.run("-m", "django", *arguments)

    def migrate(self) -> None:
        """Make the tables; the next test of the same project begins with a copy of the file."""
        file = Path(self.environment["HOST_PROJECT_DATABASE"])
        if self.name in _MIGRATED:
            file.write_bytes(_MIGRATED[self.name])
        else:
            self.manage("migrate", "--verbosity", "0")
            self.keep_migrated()

    def keep_migrated(self) -> None:
        """Remember the file for the next test of the same project."""
        file = Path(self.environment["HOST_PROJECT_DATABASE"])
        _MIGRATED.setdefault(self.name, file.read_bytes())

    def complaints(self) -> list[str]:
        """Return the ids of what `manage.py check` says."""
        done = self.try_to_run("-m", "django", "check")
        assert "Traceback" not in done.stderr, done.stderr
        return sorted(re.findall(r"\((\w+\.[EWI]\d{3})\)", done.stderr))

    @contextmanager
    def serving(self, *command: str) -> Iterator[str]:
        """Serve the project by `python -m COMMAND`, in which {port} is filled in; end it as Ctrl-C does."""
        port = free_port()
        log = self.directory / "server.log"
        log.unlink(missing_ok=True)
        server = Process(
            self.name,
            ["-m", *(word.format(port=port) for word in command)],
            fork_server=shared_fork_server(),
            environment=self.environment,
            log=log,
            directory=self.directory,
        )
        try:
            eventually_sync(
                lambda: _listens(port) or not server.is_alive,
                timeout=LONG_PATIENCE,
            )
            assert server.is_alive, server.said
            yield f"http://localhost:{port}"
            server.signal(signal.SIGINT)
            # A server that turns drained before ends by the signal that they sent it then.
            ends = (0, -signal.SIGINT, -signal.SIGTERM)
            assert server.wait(within=PATIENCE) in ends, server.said
        finally:
            server.kill()


class FreshProject(HostProject):
    """What `django-admin startproject` makes, changed by what the page says and nothing else."""

    def __init__(self, *, path: tuple[Path, ...], directory: Path) -> None:
        super().__init__("myproject", path=path, directory=directory)

    @classmethod
    def start(cls, *, path: tuple[Path, ...], directory: Path) -> "FreshProject":
        """Make the project, with the blocks of the page."""
        made = cls(path=path, directory=directory)
        del made.environment["DJANGO_SETTINGS_MODULE"]  # there are none yet
        made.manage("startproject", made.name, str(directory))
        for block in map(block_with, _BLOCKS):
            made.apply(block)
        return cls(path=path, directory=directory)

    def apply(self, block: str) -> None:
        """Put a block of the page where it says that it belongs."""
        package = self.directory / self.name
        if '"""asgi.py"""' in block:
            (package / "asgi.py").write_text(block, "utf-8")
        elif "urlpatterns = " in block:
            (package / "urls.py").write_text(block, "utf-8")
        else:
            name = "urls.py" if "urlpatterns" in block else "settings.py"
            with (package / name).open("a", encoding="utf-8") as file:
                file.write(f"\n{_LIST.sub(_with_the_rest, block)}")


def block_with(text: str) -> str:
    """Return the block of the page in which this stands."""
    [block] = [block for block in python_blocks(PLUG_IN) if text in block]
    return block


def _with_the_rest(assignment: re.Match[str]) -> str:
    """Let a line such as `# … the rest` stand for what the list holds already."""
    name, entries = assignment[1], assignment[2]
    own = re.findall(r'^    "([^"]+)"', entries, re.MULTILINE)
    rest = f"    *[entry for entry in {name} if entry not in {own!r}],"
    assert len(_REST.findall(entries)) == 1, entries
    return f"{name} = [\n{_REST.sub(rest, entries)}]"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
