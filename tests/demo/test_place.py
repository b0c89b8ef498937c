"""Claims about the demo's directory: what is replaced, kept aside or refused."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest

from tests.spark.logs import JournalMaker
from zbroker.demo import place
from zbroker.errors import ZBrokerError


def demo_in(directory: Path) -> JournalMaker:
    """What a finished demo leaves."""
    place.prepare(directory)
    maker = JournalMaker(directory / "journal")
    maker.batch(["flights.UA"] * 3)
    place.finish(directory)
    return maker


def test_a_new_directory_is_made(tmp_path: Path) -> None:
    assert place.prepare(tmp_path / "demo") == ""
    assert (tmp_path / "demo" / place.MARKER).exists()


def test_a_finished_demo_is_replaced(tmp_path: Path) -> None:
    demo_in(tmp_path / "demo").close()
    assert "replaced" in place.prepare(tmp_path / "demo")
    assert not (tmp_path / "demo" / "journal").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_a_demo_whose_log_was_used_since_is_kept_aside(tmp_path: Path) -> None:
    maker = demo_in(tmp_path / "demo")
    maker.batch(["mine"])
    maker.close()
    assert "demo.1" in place.prepare(tmp_path / "demo")
    assert (tmp_path / "demo.1" / "journal").exists()


def test_an_unfinished_demo_is_kept_aside(tmp_path: Path) -> None:
    place.prepare(tmp_path / "demo")
    place.prepare(tmp_path / "demo")
    place.prepare(tmp_path / "demo")
    assert {path.name for path in tmp_path.iterdir()} == {"demo", "demo.1", "demo.2"}


def test_a_finished_demo_without_its_log_is_kept_aside(tmp_path: Path) -> None:
    demo_in(tmp_path / "demo").close()
    shutil.rmtree(tmp_path / "demo" / "journal")
    assert "demo.1" in place.prepare(tmp_path / "demo")


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all my work")
    with pytest.raises(ZBrokerError) as caught:
        place.prepare(tmp_path)
    assert caught.value.code == "not_a_demo"
    assert (tmp_path / "thesis.tex").read_text() == "all my work"


def test_a_running_instance_is_left_alone(tmp_path: Path) -> None:
    demo_in(tmp_path / "demo").close()
    with (tmp_path / "demo" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ZBrokerError) as caught:
            place.prepare(tmp_path / "demo")
    assert caught.value.code == "running"


def demo_of_three(directory: Path) -> list[JournalMaker]:
    """What a finished demo of several instances leaves."""
    place.prepare(directory)
    makers = [JournalMaker(directory / name / "journal") for name in "abc"]
    for maker in makers:
        maker.batch(["flights.UA"] * 3)
    place.finish(directory, "abc")
    return makers


def test_a_finished_demo_of_several_instances_is_replaced(tmp_path: Path) -> None:
    for maker in demo_of_three(tmp_path / "demo"):
        maker.close()
    assert "replaced" in place.prepare(tmp_path / "demo")


def test_one_log_of_several_that_was_used_since_keeps_all(tmp_path: Path) -> None:
    makers = demo_of_three(tmp_path / "demo")
    makers[1].batch(["mine"])
    for maker in makers:
        maker.close()
    assert "demo.1" in place.prepare(tmp_path / "demo")


def test_one_instance_of_several_that_runs_leaves_all_alone(tmp_path: Path) -> None:
    for maker in demo_of_three(tmp_path / "demo"):
        maker.close()
    with (tmp_path / "demo" / "b" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ZBrokerError) as caught:
            place.prepare(tmp_path / "demo")
    assert caught.value.code == "running"
