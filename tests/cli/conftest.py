"""Fixtures of the tests of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker


@pytest.fixture(autouse=True)
def no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts of whoever runs the tests count in none of them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("ZBROKER_CONTEXT", raising=False)


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    """A journal in a data directory."""
    return Maker(tmp_path / "data")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeAdmin]:
    """The admin of an instance on the same data directory."""
    admin = FakeAdmin(tmp_path / "data")
    yield admin
    admin.close()
