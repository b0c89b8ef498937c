"""requirements.lock: exact versions with hashes of all that a running instance may import."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"
FOR_DEVELOPERS = {"test", "perf", "dev"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
INSTALL_S = 1_200
MODE = "from zbroker.client.publisher import hot_path"


def locked() -> dict[str, list[tuple[Requirement, list[str]]]]:
    """By name: each version with its hashes; several where it depends on the platform."""
    found: dict[str, list[tuple[Requirement, list[str]]]] = {}
    for entry in LOCK.read_text().replace("\\\n", " ").splitlines():
        if entry and not entry.startswith("#"):
            text, *hashes = entry.split("--hash=")
            requirement = Requirement(text.strip())
            found.setdefault(normal(requirement.name), []).append(
                (requirement, [each.strip() for each in hashes])
            )
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted() -> list[Requirement]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    texts = [setup["options"]["install_requires"]]
    extras = setup["options.extras_require"]
    texts += [extras[each] for each in extras if each not in FOR_DEVELOPERS]
    return [Requirement(line) for text in texts for line in text.splitlines() if line]


def holds(marker: Marker | None, python: str, machine: str) -> bool:
    there = {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "platform_machine": machine,
    }
    return marker is None or marker.evaluate(there)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("machine", MACHINES)
def test_each_requirement_is_locked_to_one_version_that_setup_cfg_allows(
    python: str, machine: str
) -> None:
    found = locked()
    for requirement in wanted():
        here = [one for one, _ in found[normal(requirement.name)]
                if holds(one.marker, python, machine)]  # fmt: skip
        assert len(here) == 1, f"{requirement}: run scripts/lock"
        [version] = here[0].specifier
        assert version.operator == "=="
        assert requirement.specifier.contains(version.version), f"{requirement}: run scripts/lock"


def test_every_version_has_hashes() -> None:
    for versions in locked().values():
        for requirement, hashes in versions:
            assert hashes, requirement
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


def test_the_lock_names_no_index() -> None:
    assert not re.search(r"://|index-url|find-links|trusted-host", LOCK.read_text())


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(2 * INSTALL_S)
def test_what_is_locked_can_be_installed_and_runs(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    source = tmp_path / "source"  # a build leaves files beside what it builds
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.so"))
    for command in (
        [*pip, "--require-hashes", "-r", str(LOCK)],
        [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", str(source)],
        [*pip, "--no-index", "--no-deps", "--find-links", "dist", "zbroker"],
        [python, "-c", f"{MODE}; assert hot_path.COMPILED"],
        [python, "-m", "pip", "check"],
        [str(tmp_path / "venv" / "bin" / "zbroker"), "--version"],
    ):
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(2 * INSTALL_S)
def test_without_a_compiler_the_package_is_built_all_the_same(tmp_path: Path) -> None:
    source, found = tmp_path / "source", tmp_path / "found"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.so"))
    environment = {**os.environ, "CC": "/nonexistent/cc", "PYTHONPATH": str(found)}
    for command in (
        ["pip", "install", "--quiet", "--no-deps", "--target", str(found), str(source)],
        ["zbroker.cli.main", "--version"],
    ):
        subprocess.run(
            [sys.executable, "-m", *command], env=environment, cwd=tmp_path, timeout=INSTALL_S,
            check=True,
        )  # fmt: skip
    code = f"{MODE}; assert not hot_path.COMPILED; print(hot_path.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, timeout=60, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith(str(found))
