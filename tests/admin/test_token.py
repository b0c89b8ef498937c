"""zbroker/admin/token.py: a new secret at each start, for the owner only."""

from __future__ import annotations

from pathlib import Path

import pytest

from zbroker.admin import token
from zbroker.errors import ConfigError


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "admin.token"
    secret = token.make(path)
    assert path.read_text() == secret
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(secret) == 64


def test_each_start_has_another_one(tmp_path: Path) -> None:
    path = tmp_path / "admin.token"
    path.write_text("old")
    path.chmod(0o644)
    assert token.make(path) != token.make(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        token.make(tmp_path / "missing" / "admin.token")
