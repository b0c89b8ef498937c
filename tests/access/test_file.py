"""The access file is read again when it changes (zbroker/access/file.py)."""

from __future__ import annotations

import logging
import mmap
import os
from pathlib import Path

import pytest

from tests.access.build import KEYS
from zbroker.access.file import LOOK_MS, AccessFile
from zbroker.access.format import FILE_MAX_BYTES
from zbroker.errors import ConfigError

OLD = f"[principal.old]\nkeys = ['{KEYS[0]}']\n"
NEW = f"[principal.new]\nkeys = ['{KEYS[1]}']\n"
LOG = logging.getLogger("test.access")


class FakeClock:
    """A wall clock that is as old as is said, so that no file is young by itself."""

    def __init__(self) -> None:
        self.ns = 0

    def wall_ns(self) -> int:
        return self.ns

    def mono_ms(self) -> int:
        return 0


class Watched:
    """An access file, and whoever looks at it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write(OLD)
        self.clock = FakeClock()
        self.now_ms = 0
        self.file = AccessFile(path, self.clock, LOG)

    def write(self, text: str) -> None:
        self.path.write_text(text)
        self.path.chmod(0o644)

    def look(self) -> bool:
        self.now_ms += LOOK_MS
        return self.file.look(self.now_ms)

    @property
    def who(self) -> list[str]:
        return list(self.file.access.principals)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "access.toml")


def test_it_is_read_at_the_start(watched: Watched) -> None:
    assert (watched.who, watched.file.version, watched.file.problem) == (["old"], 1, "")
    assert watched.file.access.on
    assert not watched.look()


def test_without_a_file_everybody_may_do_everything() -> None:
    file = AccessFile(None, FakeClock(), LOG)
    assert not file.access.on
    assert not file.look(LOOK_MS)
    assert (file.version, file.problem) == (0, "")


def test_a_change_counts_once_it_was_read_twice(watched: Watched) -> None:
    watched.write(NEW)
    assert [watched.look() for _ in range(4)] == [False, True, False, False]
    assert (watched.who, watched.file.version) == (["new"], 2)


def test_it_is_looked_at_now_and_then_only(watched: Watched) -> None:
    assert not watched.look()
    watched.write(NEW)
    assert not watched.file.look(watched.now_ms + LOOK_MS - 1)
    assert [watched.look(), watched.look()] == [False, True]


def test_what_is_being_written_is_waited_for(watched: Watched) -> None:
    text = NEW + OLD
    for part in ("", NEW[:20], NEW, text[:-5]):
        watched.write(part)
        assert not watched.look()
        assert (watched.who, watched.file.problem) == (["old"], "")
    watched.write(text)
    assert [watched.look(), watched.look()] == [False, True]
    assert watched.who == ["new", "old"]


def test_what_came_and_went_is_no_change(watched: Watched) -> None:
    watched.write(NEW)
    assert not watched.look()
    watched.write(OLD)
    assert [watched.look() for _ in range(3)] == [False, False, False]
    assert watched.file.version == 1
    watched.write(NEW)
    assert [watched.look(), watched.look()] == [False, True]


def test_a_file_that_was_replaced_is_read(watched: Watched) -> None:
    other = watched.path.with_name("other")
    other.write_text(NEW)
    os.utime(other, ns=(0, watched.path.stat().st_mtime_ns))
    other.replace(watched.path)
    assert [watched.look(), watched.look()] == [False, True]


def test_a_link_that_was_changed_is_followed(tmp_path: Path) -> None:
    for name, text in (("a", OLD), ("b", NEW)):
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to("a")
    file = AccessFile(tmp_path / "link", FakeClock(), LOG)
    (tmp_path / "link.new").symlink_to("b")
    (tmp_path / "link.new").replace(tmp_path / "link")
    assert [file.look(LOOK_MS), file.look(2 * LOOK_MS)] == [False, True]


def test_a_change_within_one_tick_of_the_clock_is_seen(watched: Watched) -> None:
    """A file of the same size and times is read, too, while it is young."""
    with watched.path.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        mapped[:] = OLD.encode()
        file = AccessFile(watched.path, watched.clock, LOG)
        before = stamps(watched.path)
        mapped[:] = NEW.encode()  # a page that was written changes the times once
        assert stamps(watched.path) == before
        assert [file.look(LOOK_MS), file.look(2 * LOOK_MS)] == [False, False]
        watched.clock.ns = max(before) + 1_000_000_000
        assert [file.look(3 * LOOK_MS), file.look(4 * LOOK_MS)] == [False, True]


def stamps(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_ctime_ns


class TestABrokenFile:
    def break_it(self, watched: Watched, caplog: pytest.LogCaptureFixture, text: str) -> None:
        watched.write(text)
        with caplog.at_level(logging.INFO, "test.access"):
            assert not any(watched.look() for _ in range(4))

    @pytest.mark.parametrize(
        ("text", "problem"),
        [("[principal", "Expected"), ("", "no principal"), (OLD + "x = 1\n", ":3: unknown key")],
    )
    def test_keeps_the_old_rules(
        self, watched: Watched, caplog: pytest.LogCaptureFixture, text: str, problem: str
    ) -> None:
        self.break_it(watched, caplog, text)
        assert (watched.who, watched.file.version) == (["old"], 1)
        assert problem in watched.file.problem
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "the rules before it hold on" in caplog.text

    def test_is_used_once_it_is_mended(
        self, watched: Watched, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.break_it(watched, caplog, "[principal")
        watched.write(NEW)
        assert [watched.look(), watched.look()] == [False, True]
        assert (watched.who, watched.file.problem, watched.file.version) == (["new"], "", 2)

    def test_is_used_again_once_it_is_as_it_was(
        self, watched: Watched, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.break_it(watched, caplog, "[principal")
        watched.write(OLD)
        assert [watched.look(), watched.look()] == [False, True]
        assert (watched.who, watched.file.problem) == (["old"], "")

    def test_stays_one_if_it_vanishes_for_a_moment(
        self, watched: Watched, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.break_it(watched, caplog, "[principal")
        away = watched.path.rename(watched.path.with_name("away"))
        assert not watched.look()
        away.rename(watched.path)
        assert not watched.look()
        assert "Expected" in watched.file.problem


def test_a_vanished_file_keeps_the_old_rules(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    away = watched.path.rename(watched.path.with_name("away"))
    assert not any(watched.look() for _ in range(3))
    assert len(caplog.records) == 1
    assert (watched.who, watched.file.version) == (["old"], 1)
    assert "No such file" in watched.file.problem
    away.rename(watched.path)
    assert not watched.look()
    assert watched.file.problem == ""


@pytest.mark.parametrize("bits", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_used(watched: Watched, bits: int) -> None:
    watched.path.chmod(bits)
    assert not watched.look()
    assert "others than its owner may write" in watched.file.problem
    watched.path.write_text(NEW)
    assert not any(watched.look() for _ in range(3))
    assert watched.who == ["old"]
    watched.path.chmod(0o640)
    assert [watched.look(), watched.look()] == [False, True]
    assert watched.file.problem == ""


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"", "no principal"),
        (b"\xff", "not UTF-8"),
        (b"#" * (FILE_MAX_BYTES + 1), "more than"),
    ],
)
def test_nothing_starts_without_rules(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "access.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        AccessFile(path, FakeClock(), LOG)


def test_what_is_no_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, reason in ((tmp_path / "fifo", "is not a file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=reason):
            AccessFile(path, FakeClock(), LOG)


def test_no_log_line_has_a_key(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "test.access"):
        for text in (NEW, "[principal.a]\nkeys = ['sesame']\n", NEW + OLD):
            watched.write(text)
            assert [watched.look(), watched.look()] == [False, "sesame" not in text]
    assert len(caplog.records) == 3
    assert not [secret for secret in (*KEYS, "sesame") if secret in caplog.text]
