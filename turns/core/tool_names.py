"""Names of tools as a person writes them down: exact ones, and beginnings that end in an asterisk."""

from collections.abc import Iterable


class ToolNames:
    """The tools that are meant, whether they are there yet or not; `github_*` stands for all that begin with it."""

    def __init__(self, names: Iterable[str]) -> None:
        names = tuple(names)
        self._exact = frozenset(name for name in names if not name.endswith("*"))
        self._beginnings = tuple(name.removesuffix("*") for name in names if name.endswith("*"))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._exact or name.startswith(self._beginnings))
