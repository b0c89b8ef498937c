"""Claims about what a version needs, and about where things are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf.brokers.install import relocated
from perf.sides import ROOT, UnknownSideError, cache_directory, key, prepare, requirements

SETUP_CFG = """
[options]
install_requires =
    pyzmq >=27,<28
    # a comment
    msgpack >=1.1,<2
[options.extras_require]
perf =
    redis >=5
"""


def test_requirements_are_those_of_the_package_alone() -> None:
    assert requirements(SETUP_CFG) == ["msgpack >=1.1,<2", "pyzmq >=27,<28"]


def test_the_order_of_requirements_makes_no_other_environment() -> None:
    turned = SETUP_CFG.replace("    pyzmq >=27,<28\n", "") + "\n"
    turned = turned.replace("    msgpack >=1.1,<2\n", "    msgpack >=1.1,<2\n    pyzmq >=27,<28\n")
    assert key(requirements(turned)) == key(requirements(SETUP_CFG))


def test_another_version_of_a_requirement_makes_another_environment() -> None:
    other = SETUP_CFG.replace("27,<28", "26,<27")
    assert key(requirements(other)) != key(requirements(SETUP_CFG))


def test_the_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_directory(str(tmp_path)) == tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory(None) == tmp_path / "zbroker-perf"


def test_this_checkout_needs_nothing_to_be_made(tmp_path: Path) -> None:
    side = prepare(".", tmp_path)
    assert (side.kind, side.tree) == ("zbroker", ROOT)
    assert list(tmp_path.iterdir()) == []


def test_what_is_neither_a_commit_nor_a_broker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownSideError, match="neither a commit nor"):
        prepare("no-such-commit", tmp_path)


def test_a_script_of_erlang_looks_below_the_cache_for_its_files(tmp_path: Path) -> None:
    script = 'if [ -z "$ERL_ROOTDIR" ]\n    ROOTDIR=/usr/lib/erlang\nBINDIR="$ROOTDIR/bin"\n'
    changed = relocated(script, tmp_path)
    assert f"\n    ROOTDIR={tmp_path}/usr/lib/erlang\n" in changed
    assert 'BINDIR="$ROOTDIR/bin"' in changed
