"""zbroker/server/spawn.py: another process with the same modules."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from zbroker.server.spawn import command


def test_a_file_in_the_current_directory_shadows_nothing(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('shadowed')")
    done = subprocess.run(
        command("zbroker.cli.main", "--version"), cwd=tmp_path, timeout=60, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"zbroker ")


def test_it_finds_what_only_this_process_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told_of.py").write_text("import sys\ndef main(): return int(sys.argv[1])\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert subprocess.run(command("told_of", "7"), timeout=60).returncode == 7
