"""zbroker/admin/audit.py, audit_format.py: a chain of lines that shows what was done to it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.admin import audit as audits
from zbroker.admin import audit_format as fmt
from zbroker.admin.audit import (
    DONE,
    REFUSED_MAX,
    REFUSED_MS,
    VERIFY_MS,
    Audit,
    AuditedRequest,
    RefusalReports,
    verify,
)
from zbroker.errors import ClientError
from zbroker.wire.surveys import AskRefusals, RefusalRow, RefusalRows

LOG = logging.getLogger("test")
ANN = AuditedRequest("ann", "127.0.0.1:5", "POST /journal/remove through")
TEXT = st.text(max_size=30)


class Clock:
    """Stands still unless a test moves it."""

    def __init__(self) -> None:
        self.ms = 0

    def wall_ns(self) -> int:
        return self.ms * 1_000_000

    def mono_ms(self) -> int:
        return self.ms


class Bench:
    def __init__(self, data: Path) -> None:
        self.path = data / "audit"
        self.clock = Clock()
        self.audit = self.again()

    def again(self) -> Audit:
        self.audit = Audit(self.path, self.clock, LOG)
        return self.audit

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_bytes().splitlines()]

    def document(self) -> dict[str, Any]:
        self.clock.ms += VERIFY_MS
        return self.audit.document(1_000)

    def whats(self) -> list[str]:
        return [entry["what"] for entry in self.document()["entries"]]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_nothing_was_done_yet(bench: Bench) -> None:
    assert bench.document() == {"entries": [], "intact": True, "broken": None}


def test_a_line_says_who_did_what(bench: Bench) -> None:
    bench.audit.write(ANN, DONE)
    [line] = bench.lines()
    found = line.pop("hash")
    assert line == {
        "time": "19700101T000000Z", "who": "ann", "from": "127.0.0.1:5",
        "what": "POST /journal/remove through", "outcome": "done", "prev": fmt.FIRST,
    }  # fmt: skip
    body = json.dumps(line, separators=(",", ":")).encode()
    assert found == hashlib.blake2b(body, digest_size=32).hexdigest()


def test_only_its_owner_reads_it(bench: Bench) -> None:
    bench.audit.write(ANN, DONE)
    assert bench.path.stat().st_mode & 0o777 == 0o600


def test_the_chain_goes_on_after_a_restart(bench: Bench) -> None:
    for _ in range(3):
        bench.again().write(ANN, DONE)
    lines = bench.lines()
    assert [line["prev"] for line in lines[1:]] == [line["hash"] for line in lines[:-1]]
    assert bench.document()["intact"]


def test_the_newest_entries_are_reported(bench: Bench) -> None:
    for number in range(5):
        bench.audit.write(ANN._replace(what=str(number)), DONE)
    found = bench.audit.document(2)
    assert [entry["what"] for entry in found["entries"]] == ["4", "3"]
    assert set(found["entries"][0]) == {"time", "who", "from", "what", "outcome", "hash"}


@pytest.mark.parametrize(
    ("damage", "broken"),
    [
        (lambda lines: [lines[0], lines[1].replace(b"ann", b"bob"), *lines[2:]], "line 2: it was"),
        (lambda lines: lines[1:], "line 1: the line before"),
        (lambda lines: [lines[0], *lines[2:]], "line 2: the line before"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "line 1: the line before"),
        (lambda lines: [lines[0], lines[0], *lines[1:]], "line 2: the line before"),
        (lambda lines: [lines[0], b"\n", *lines[1:]], "line 2: it is not a line"),
        (lambda lines: [lines[0], b'{"x": 1}\n', *lines[1:]], "line 2: it is not a line"),
        (lambda lines: lines[:-1], "its end was cut off"),
        (lambda lines: [], "its end was cut off"),
    ],
)
def test_what_was_done_to_it_is_noticed(bench: Bench, damage: Any, broken: str) -> None:
    for _ in range(4):
        bench.audit.write(ANN, DONE)
    lines = bench.path.read_bytes().splitlines(keepends=True)
    assert bench.document()["intact"]
    bench.path.write_bytes(b"".join(damage(lines)))
    found = bench.document()
    assert not found["intact"]
    assert broken in found["broken"]


def test_a_forged_line_needs_all_that_follow(bench: Bench) -> None:
    """Its own hash can be made right; that of the next line cannot without changing it."""
    for _ in range(3):
        bench.audit.write(ANN, DONE)
    first, second, third = bench.path.read_bytes().splitlines(keepends=True)
    prev = json.loads(first)["hash"]
    forged, _ = fmt.encode(fmt.AuditLine("19700101T000000Z", "bob", "", "x", "done", prev))
    bench.path.write_bytes(first + forged + third)
    assert verify(bench.path).endswith(
        "line 3: the line before it was changed, removed or inserted"
    )
    assert second != forged


def test_a_torn_line_is_cut_off_at_the_next_start(bench: Bench) -> None:
    bench.audit.write(ANN, DONE)
    bench.audit.write(ANN, DONE)
    data = bench.path.read_bytes()
    for end in range(data.index(b"\n") + 1, len(data)):
        bench.path.write_bytes(data[:end])
        bench.again().write(ANN, "again")
        assert [line["outcome"] for line in bench.lines()] == ["done", "again"]
        assert bench.document()["intact"]


def test_a_full_file_makes_way(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "FILE_MAX_BYTES", 1_000)
    for number in range(12):
        bench.audit.write(ANN._replace(what=str(number)), DONE)
        assert bench.path.stat().st_size <= 1_000
    older = bench.path.with_name("audit.1")
    assert older.stat().st_size <= 1_000
    found = bench.document()
    assert found["intact"]
    whats = [entry["what"] for entry in found["entries"]]
    assert whats == [str(number) for number in range(11, 11 - len(whats), -1)]
    kept = older.read_bytes().count(b"\n")
    assert len(whats) > kept
    assert bench.again().document(1_000)["intact"]
    older.unlink()
    assert "line 1: the line before" in bench.document()["broken"]


def test_a_restart_just_after_the_file_made_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.audit.write(ANN, DONE)
    bench.path.replace(bench.audit.older)
    bench.again().write(ANN, DONE)
    assert bench.document()["intact"]
    assert len(bench.document()["entries"]) == 2


def test_a_flood_of_refusals_is_counted(bench: Bench) -> None:
    for _ in range(REFUSED_MAX + 50):
        bench.audit.refuse(ANN, "forbidden")
    bench.audit.tick()
    assert len(bench.lines()) == REFUSED_MAX
    bench.audit.write(ANN, DONE)
    assert len(bench.lines()) == REFUSED_MAX + 1, "what is done is always reported"
    bench.clock.ms += REFUSED_MS
    bench.audit.tick()
    assert bench.lines()[-1]["what"] == "50 more requests"
    bench.audit.refuse(ANN, "forbidden")
    assert bench.lines()[-1]["what"] == ANN.what
    assert bench.audit.refused == {"forbidden": REFUSED_MAX + 51}


def test_refusals_that_were_all_reported_are_not_counted_again(bench: Bench) -> None:
    bench.audit.refuse(ANN, "forbidden")
    bench.clock.ms += REFUSED_MS
    bench.audit.tick()
    assert len(bench.lines()) == 1


def test_a_line_that_cannot_be_written_is_left_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.audit.write(ANN, DONE)
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
    bench.audit.write(ANN, DONE)
    monkeypatch.undo()
    assert "audit log cannot be kept" in caplog.text
    bench.audit.write(ANN._replace(what="later"), DONE)
    assert bench.document()["intact"]
    assert bench.whats() == ["later", ANN.what]


def test_a_long_chain_is_not_read_again_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.audit.write(ANN, DONE)
    assert bench.document()["intact"]
    monkeypatch.setattr(audits, "verify", lambda path: "broken")
    bench.audit.write(ANN, DONE)
    assert bench.audit.document(10)["intact"], "as of a moment ago"
    assert not bench.document()["intact"]


@given(TEXT, TEXT, TEXT, TEXT)
def test_every_line_is_read_as_it_was_written(who: str, origin: str, what: str, end: str) -> None:
    line = fmt.AuditLine("19700101T000000Z", who, origin, what, end, fmt.FIRST)
    data, found = fmt.encode(line)
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    entry = fmt.decode(data)
    assert entry is not None
    assert (entry.who, entry.origin, entry.what, entry.outcome) == (who, origin, what, end)
    assert fmt.check(data.rstrip(b"\n"), fmt.FIRST) == (found, "")


@given(st.integers(0, 400), st.integers(1, 255))
def test_no_byte_can_be_changed(at: int, by: int) -> None:
    data, _ = fmt.encode(fmt.AuditLine("19700101T000000Z", "a" * 200, "", "x", "done", fmt.FIRST))
    changed = bytearray(data.rstrip(b"\n"))
    changed[at % len(changed)] ^= by
    assert fmt.check(bytes(changed), fmt.FIRST)[1] != ""


def test_the_longest_line_has_space() -> None:
    worst = "\U0001f600" * 500
    line = fmt.AuditLine("1" * 30, worst[: audits.NAME_MAX], "1" * 60, worst, "x" * 30, fmt.FIRST)
    assert len(fmt.encode(line)[0]) <= fmt.LINE_MAX_BYTES


class FakeLink:
    """Processes that answer what the test says."""

    processes = ("ingest", "delivery")

    def __init__(self, *answers: RefusalRows | ClientError | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, str]] = []
        self.processes = ["ingest"]

    def ask(self, _: object, question: AskRefusals, processes: Collection[str]) -> dict[str, Any]:
        (process,) = processes
        self.asked.append((question.after, process))
        answer = self.answers.pop(0)
        if isinstance(answer, ClientError):
            raise answer
        return {process: answer}


class Lines:
    """An audit log that is a list."""

    def __init__(self) -> None:
        self.lines: list[tuple[AuditedRequest, str]] = []

    def refuse(self, asked: AuditedRequest, code: str) -> None:
        self.lines.append((asked, code))


def looked(*answers: RefusalRows | ClientError | None) -> tuple[FakeLink, Lines]:
    link, lines = FakeLink(*answers), Lines()
    refusals = RefusalReports([link], lines)  # type: ignore[arg-type,list-item]
    for _ in answers:
        refusals.look_at("ingest")
    return link, lines


def row(who: str) -> RefusalRow:
    return RefusalRow(who, "10.0.0.1:5", "publish t", "not_entitled")


def test_what_is_new_becomes_lines() -> None:
    link, lines = looked(RefusalRows(1, 2, [row("a"), row("b")]), RefusalRows(2, 3, [row("c")]))
    assert link.asked == [(0, "ingest"), (2, "ingest")]
    assert lines.lines == [
        (AuditedRequest(who, "10.0.0.1:5", "ingest: publish t"), "not_entitled") for who in "abc"
    ]


def test_who_does_not_answer_is_asked_the_same_again() -> None:
    link, lines = looked(None, ClientError("not_ready", "others ask"), RefusalRows(1, 1, []))
    assert [after for after, _ in link.asked] == [0, 0, 0]
    assert lines.lines == []


def test_what_a_flood_pushed_out_is_one_line() -> None:
    _, lines = looked(RefusalRows(1, 300, [row("z")], left_out=44))
    assert lines.lines[-1] == (AuditedRequest("", "", "ingest: 44 more requests"), "refused")
