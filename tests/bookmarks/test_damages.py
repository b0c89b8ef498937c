"""An index may be damaged, deleted, stale or ahead: answers are the log's, no data is touched.

An index that is ahead of the log is proof of a loss: the start is refused.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bookmarks import damages
from zbroker.bookmarks import files

CHILD_LIMIT_S = 60
LONG = 500


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return damages.make(tmp_path_factory.mktemp("history") / "data")


def contents(path: Path) -> dict[str, bytes]:
    """All segments."""
    return {found.name: found.read_bytes() for found in (path / "journal").glob("*.journal")}


def outcomes(path: Path, seed: int, *options: str) -> list[str]:
    """What starts say, until one comes through."""
    said = []
    while len(said) <= files.CRASHES_MAX:
        done = subprocess.run(
            [sys.executable, "-m", "tests.bookmarks.asking_child", str(path), str(seed),
             *(options or ("-",))],
            capture_output=True, timeout=CHILD_LIMIT_S, check=False,
        )  # fmt: skip
        assert done.returncode <= 0, done.stderr.decode()
        said.append(done.stdout.decode() if done.returncode == 0 else "ended")
        if done.returncode == 0:
            break
    return said


def suffer(pristine: Path, path: Path, seed: int) -> None:
    damage = damages.DAMAGES[seed % len(damages.DAMAGES)]
    shutil.copytree(pristine, path)
    before = contents(path)
    damage(path, random.Random(seed))
    said = outcomes(path, seed)
    assert contents(path) == before, damage.__name__
    if damage.__name__ != "ahead":
        assert said[-1] == "whole", (damage.__name__, said)
        assert set(said[:-1]) <= {"ended"}
        return
    assert said == ["refused"]
    (accepted,) = outcomes(path, seed, "accept")
    assert accepted.startswith("lost (")
    after = contents(path)
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 1
    assert outcomes(path, seed) == ["whole"]


@pytest.mark.process
@pytest.mark.parametrize("seed", range(len(damages.DAMAGES)))
def test_every_damage_costs_time_only(pristine: Path, tmp_path: Path, seed: int):
    suffer(pristine, tmp_path / "data", seed)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(3_600)
def test_five_hundred_damages_cost_time_only(pristine: Path, tmp_path: Path):
    for seed in range(1_000, 1_000 + LONG):
        path = tmp_path / str(seed)
        suffer(pristine, path, seed)
        shutil.rmtree(path)
