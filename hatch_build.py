"""Build hooks of a release. They include exactly the files that git tracks, and adapt the README to a package index."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

LEFT_OUT = (".ci/",)
_IMAGE = re.compile(r"^!\[([^\]]*)\]\((?!\w+:)([^)]+)\)\n+", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)]+)\)")
_LAST_SECTION = re.compile(r"^## Read on\n.*", re.MULTILINE | re.DOTALL)
_ARCHIVE_SECTION = "## Read on\n\nThe documentation is in the source archive of this version: begin with `docs/index.md`.\n"


class PackagePage(MetadataHookInterface):
    """Adds the README and the project's links.

    The address comes from PROJECT_URL, which the publisher of a release sets.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README and, if there is an address, the links to the project."""
        address = os.environ.get("PROJECT_URL", "").rstrip("/")
        readme = Path(self.root, "README.md").read_text("utf-8")
        text = with_links(readme, address=address) if address else without_links(readme)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(address) if address else {}


class TrackedFiles(BuildHookInterface[Any]):
    """Puts the tracked files into the source archive, and no other files of the directory."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Include every tracked file outside the directories in `LEFT_OUT`."""
        for name in tracked_files(Path(self.root)):
            if not name.startswith(LEFT_OUT):
                build_data["force_include"][str(Path(self.root, name))] = name


def urls(address: str) -> dict[str, str]:
    """Return the links for a package page. Their paths work on GitHub and GitLab."""
    return {
        "Source": address,
        "Documentation": f"{address}/blob/HEAD/docs/index.md",
        "Changes": f"{address}/blob/HEAD/CHANGELOG.md",
    }


def with_links(readme: str, *, address: str) -> str:
    """Return the README with its relative links and images made absolute."""
    pictures = _IMAGE.sub(rf"![\1]({address}/raw/HEAD/\2)\n\n", readme)
    return _LINK.sub(rf"[\1]({address}/blob/HEAD/\2)", pictures)


def without_links(readme: str) -> str:
    """Return the README without images and links to files, which only work in the repository."""
    return _LINK.sub(r"\1", _LAST_SECTION.sub(_ARCHIVE_SECTION, _IMAGE.sub("", readme)))


def tracked_files(root: Path) -> Iterator[str]:
    """Yield the paths of the files that git tracks.

    In an unpacked source archive, which is not a repository, yield all files.
    """
    output = (
        _git(root, "ls-files", "-z") if _git(root, "rev-parse", "--show-prefix") == "\n" else ""
    )
    if output:
        yield from (name for name in output.split("\0") if name and (root / name).is_file())
        return
    for path in sorted(root.rglob("*")):
        if path.is_file() and not {"dist", "__pycache__", ".venv", "var"} & {
            *path.relative_to(root).parts
        }:
            yield str(path.relative_to(root))


def _git(root: Path, *arguments: str) -> str:
    try:
        command = ["git", *arguments]
        process = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:  # git is not installed
        return ""
    return process.stdout if process.returncode == 0 else ""
