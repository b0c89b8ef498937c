"""The house: setup.cfg, scripts, and the rules of tests/conftest.py."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import zbroker
from tests import conftest

ROOT = Path(__file__).parent.parent
SCRIPTS = ["check", "test", "test-all", "fuzz", "quickstart"]


def test_the_version_is_the_one_of_the_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["metadata"]["version"] == "attr: zbroker.__version__"
    assert zbroker.__version__.count(".") == 2


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        zbroker.nothing  # noqa: B018


def test_the_package_lists_its_lazy_names() -> None:
    assert {"connect", "LocalBroker", "errors"} <= set(dir(zbroker))


def test_importing_the_package_imports_no_space() -> None:
    code = "import sys, zbroker; sys.exit(any(m in sys.modules for m in ('zmq', 'lmdb', 'click')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=30).returncode == 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_executable_shell(name: str) -> None:
    path = ROOT / "scripts" / name
    assert os.access(path, os.X_OK)
    assert subprocess.run(["bash", "-n", str(path)], timeout=30).returncode == 0


def _run_with_skip(folder: Path, reason: str, mark: str = "", **env: str) -> int:
    return _run(folder, f"def test_it(): pytest.skip({reason!r})", mark, **env)


def _run(folder: Path, test: str, mark: str = "", **env: str) -> int:
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "setup.cfg").write_text("[tool:pytest]\nmarkers =\n    spark: s\n    long: l\n")
    (folder / "test_it.py").write_text("\n".join(["import os, pytest", mark, test, ""]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    environment = {**os.environ, "ZB_CI": "", **env}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=60)
    return done.returncode


@pytest.mark.parametrize("reason", ["needs root", "needs package: x", "other system", "long"])
def test_a_skip_with_an_allowed_reason_passes(tmp_path: Path, reason: str) -> None:
    assert _run_with_skip(tmp_path, reason) == 0


def test_a_skip_for_another_reason_fails_the_run(tmp_path: Path) -> None:
    assert _run_with_skip(tmp_path, "flaky") == 1


def test_missing_spark_skips_at_the_desk(tmp_path: Path) -> None:
    assert _run_with_skip(tmp_path, "needs package: pyspark", "@pytest.mark.spark") == 0


def test_missing_spark_fails_in_ci(tmp_path: Path) -> None:
    reason = "needs package: pyspark"
    assert _run_with_skip(tmp_path, reason, "@pytest.mark.spark", ZB_CI="1") == 1


def test_a_long_test_is_skipped_unless_asked_for(tmp_path: Path) -> None:
    assert _run_with_skip(tmp_path, "flaky", "@pytest.mark.long") == 0


def test_a_test_that_makes_its_process_nicer_fails_the_run(tmp_path: Path) -> None:
    """All that came after it in that worker would get what other processes leave over."""
    assert _run(tmp_path, "def test_it(): os.getpriority(os.PRIO_PROCESS, 0)") == 0
    assert _run(tmp_path, "def test_it(): os.nice(1)") == 1


def test_long_files_come_first_and_take_turns() -> None:
    names = ("tests/a.py", "tests/process/b.py", "tests/process/c.py", "tests/sim/d.py")
    items: list[Any] = [SimpleNamespace(nodeid=f"{name}::{n}") for name in names for n in (1, 2)]
    assert [item.nodeid for item in conftest.in_order(items)] == [
        "tests/sim/d.py::1", "tests/sim/d.py::2", "tests/process/b.py::1", "tests/process/b.py::2",
        "tests/process/c.py::1", "tests/process/c.py::2", "tests/a.py::1", "tests/a.py::2",
    ]  # fmt: skip
