"""Refusals of the doors become lines of the audit log, each once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from zbroker.admin.audit import AuditedRequest
from zbroker.admin.refusals import RefusalReports
from zbroker.errors import ClientError
from zbroker.wire.surveys import AskRefusals, RefusalRow, RefusalRows


class Desks:
    """Rooms that answer what the test says."""

    rooms = ("ingest", "delivery")

    def __init__(self, *answers: RefusalRows | ClientError | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, str]] = []

    def ask(self, _: object, question: AskRefusals, rooms: Collection[str]) -> dict[str, Any]:
        (room,) = rooms
        self.asked.append((question.after, room))
        answer = self.answers.pop(0)
        if isinstance(answer, ClientError):
            raise answer
        return {room: answer}


class Lines:
    """An audit log that is a list."""

    def __init__(self) -> None:
        self.lines: list[tuple[AuditedRequest, str]] = []

    def refuse(self, asked: AuditedRequest, code: str) -> None:
        self.lines.append((asked, code))


def looked(*answers: RefusalRows | ClientError | None) -> tuple[Desks, Lines]:
    desks, lines = Desks(*answers), Lines()
    refusals = RefusalReports(desks, lines)  # type: ignore[arg-type]
    for _ in answers:
        refusals.look("ingest")
    return desks, lines


def row(who: str) -> RefusalRow:
    return RefusalRow(who, "10.0.0.1:5", "publish t", "not_entitled")


def test_what_is_new_becomes_lines() -> None:
    desks, lines = looked(RefusalRows(1, 2, [row("a"), row("b")]), RefusalRows(2, 3, [row("c")]))
    assert desks.asked == [(0, "ingest"), (2, "ingest")]
    assert lines.lines == [
        (AuditedRequest(who, "10.0.0.1:5", "ingest: publish t"), "not_entitled") for who in "abc"
    ]


def test_who_does_not_answer_is_asked_the_same_again() -> None:
    desks, lines = looked(None, ClientError("not_ready", "others ask"), RefusalRows(1, 1, []))
    assert [after for after, _ in desks.asked] == [0, 0, 0]
    assert lines.lines == []


def test_what_a_flood_pushed_out_is_one_line() -> None:
    _, lines = looked(RefusalRows(1, 300, [row("z")], left_out=44))
    assert lines.lines[-1] == (AuditedRequest("", "", "ingest: 44 more requests"), "refused")
