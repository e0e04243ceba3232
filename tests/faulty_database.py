"""A database that loses a statement, or only the answer to a commit, as one does whose connection is cut."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper


class FaultyDatabase:
    """Loses what it is told to lose, in whatever thread, and keeps count of it; all else works."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost: Counter[str] = Counter()
        self._statements: dict[str, int] = {}
        self._commits: dict[str, int] = {}
        self._said: defaultdict[int, list[str]] = defaultdict(list)
        for name in ("_execute", "_executemany"):
            execute = self._execute(getattr(CursorWrapper, name))
            monkeypatch.setattr(CursorWrapper, name, execute)
        commit = self._commit(BaseDatabaseWrapper._commit)
        monkeypatch.setattr(BaseDatabaseWrapper, "_commit", commit)

    def lose_statement(self, part: str, *, times: int = 1) -> None:
        """Do not carry out the next statements that hold this text."""
        self._statements[part] = times

    def lose_commit(self, part: str, *, times: int = 1) -> None:
        """Carry out the next transactions that have such a statement, but do not say so."""
        self._commits[part] = times

    def heal(self) -> None:
        """Lose nothing any more."""
        self._statements.clear()
        self._commits.clear()

    def _execute(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(cursor: CursorWrapper, sql: str, *arguments: Any) -> Any:
            said = self._said[threading.get_ident()]
            if sql.startswith("BEGIN"):
                said.clear()
            said.append(sql)
            for part in self._statements:
                if part in sql:
                    self._lose(cursor.db, self._statements, part)
            return execute(cursor, sql, *arguments)

        return faulty

    def _commit(self, commit: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(connection: BaseDatabaseWrapper) -> None:
            commit(connection)
            said = self._said.pop(threading.get_ident(), [])
            for part in self._commits:
                if any(part in sql for sql in said):
                    self._lose(connection, self._commits, part)

        return faulty

    def _lose(self, connection: BaseDatabaseWrapper, faults: dict[str, int], part: str) -> None:
        if faults[part] <= 0:
            return
        faults[part] -= 1
        self.lost[part] += 1
        with connection.wrap_database_errors:
            raise connection.Database.OperationalError("the connection is lost: hunter2")
