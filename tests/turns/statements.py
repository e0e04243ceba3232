"""What is asked of the database, counted in all threads: a capture of queries sees those of one connection only."""

from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

KINDS = ("SELECT", "INSERT", "UPDATE", "DELETE")


class Asked:
    """What all threads ask of the database: statements, in order, and how many transactions were committed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.transactions = 0
        self._is_counting = True
        for name in ("_execute", "_executemany"):
            monkeypatch.setattr(CursorWrapper, name, self._watched(getattr(CursorWrapper, name)))
        commit = BaseDatabaseWrapper._commit  # type: ignore[attr-defined]

        def counted(connection: BaseDatabaseWrapper) -> Any:
            self.transactions += self._is_counting
            return commit(connection)

        monkeypatch.setattr(BaseDatabaseWrapper, "_commit", counted)

    def reset(self) -> None:
        """Count from zero."""
        self._is_counting = True
        self.statements.clear()
        self.transactions = 0

    def stop(self) -> None:
        """Count no more, until the next `reset`."""
        self._is_counting = False

    def _watched(self, execute: Any) -> Any:
        def watched(cursor: CursorWrapper, sql: str, *arguments: Any) -> Any:
            if self._is_counting and sql.startswith(KINDS):
                self.statements.append(sql)
            return execute(cursor, sql, *arguments)

        return watched

    def assert_at_most(self, statements: int, transactions: int) -> None:
        """Fail, and list what was asked, if it was more."""
        listed = "\n".join(sql[:150] for sql in self.statements)
        assert len(self.statements) <= statements, f"{len(self.statements)} statements:\n{listed}"
        assert self.transactions <= transactions, f"{self.transactions} transactions:\n{listed}"
