"""A database with rows of work, and what was decided of each distributed transaction.

The recipe of docs/howto/a-row-and-a-message-both-or-neither.md, for sqlite3 and for PostgreSQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Protocol, Self

from tests.process.postgres import PostgresServer, programs_or_skip

WAIT_S: Final = 30
FILE: Final = "file:"  # how the URL of a database of sqlite3 begins
TABLES: Final = (
    "CREATE TABLE work (job INTEGER NOT NULL)",
    "CREATE TABLE decided (xid TEXT PRIMARY KEY, how TEXT NOT NULL)",
)


class DecisionStore:
    """A connection to it. Its methods raise what the database does, and then end nothing: that is
    what `settle` is for, on a new connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: Any
        if url.startswith(FILE):
            self._connection = sqlite3.connect(url.removeprefix(FILE), timeout=WAIT_S)
            self._connection.isolation_level = "IMMEDIATE"
            self._mark, self.errors = "?", (sqlite3.Error,)
        else:
            import psycopg

            self._connection = psycopg.connect(url, connect_timeout=WAIT_S)
            self._mark, self.errors = "%s", (psycopg.Error,)

    def make(self) -> None:
        """Its tables."""
        for text in TABLES:
            self._connection.execute(text)
        self._connection.commit()

    def insert(self, xid: str, jobs: Iterable[int]) -> None:
        """The rows, and the decision, as one, which `commit` ends."""
        for job in jobs:
            self._do("INSERT INTO work VALUES (?)", job)
        self._do("INSERT INTO decided VALUES (?, 'committed')", xid)

    def commit(self) -> None:
        self._connection.commit()

    def settle(self, xid: str) -> bool:
        """Whether it was committed; from here on it will not be if it was not."""
        self._do("INSERT INTO decided VALUES (?, 'aborted') ON CONFLICT DO NOTHING", xid)
        self._connection.commit()
        [how] = self._do("SELECT how FROM decided WHERE xid = ?", xid).fetchone()
        self._connection.commit()
        return bool(how == "committed")

    def jobs(self) -> list[int]:
        """All that were done, in their order."""
        found = [job for (job,) in self._do("SELECT job FROM work ORDER BY job").fetchall()]
        self._connection.commit()
        return found

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _do(self, text: str, *values: object) -> Any:
        return self._connection.execute(text.replace("?", self._mark), values)


class Database(Protocol):
    """What a test runs. url: for DecisionStore."""

    url: str

    def kill(self) -> None:
        """It ends wherever it is, if it is a process of its own."""

    def start(self) -> None:
        """It goes on."""

    def close(self) -> None: ...


class FileDatabase:
    """sqlite3: it lives in the processes of its clients, and dies with them."""

    def __init__(self, path: Path) -> None:
        self.url = f"{FILE}{path}"

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


def database(kind: str, directory: Path) -> Database:
    """One of its kind, with its tables."""
    made: Database = (
        PostgresServer(programs_or_skip()) if kind == "postgresql"
        else FileDatabase(directory / "shop.db")
    )  # fmt: skip
    try:
        with DecisionStore(made.url) as store:
            store.make()
    except BaseException:
        made.close()
        raise
    return made
