"""Links as their process reports them, and a process that answers what the test says."""

from __future__ import annotations

from typing import Any

import msgspec

from zbroker.admin.process_link import ReplicationLink
from zbroker.wire.replicas import (
    AskLinks,
    ChangeLink,
    LinkChanged,
    Links,
    MissingRange,
    ReplicationRow,
)
from zbroker.wire.replication import OriginPosition


def link(name: str = "b", **more: Any) -> ReplicationRow:
    """A synchronous destination that has everything."""
    made = ReplicationRow(name, "out", "sending", 0xB, mode="sync", mark=90)
    return msgspec.structs.replace(made, **more)


def source(name: str = "b", **more: Any) -> ReplicationRow:
    return msgspec.structs.replace(ReplicationRow(name, "in", "receiving", 0xB), **more)


class FakeReplication:
    """In place of the link to the endpoint of the process: `rows` are its links.

    changed: its answer to a change. silent: it answers nothing. asked: every question, in order.
    """

    processes = ("replication",)

    def __init__(self, *rows: ReplicationRow, on: bool = True) -> None:
        self.rows = list(rows)
        self.needed: int | None = 1
        self.through = 90
        self.changed = LinkChanged(0, "done")
        self.silent = False
        self.origins = [OriginPosition(0xA, 5, 89), OriginPosition(0xB, 6, 40)]
        self.ranges: list[MissingRange] = []
        self.asked: list[Any] = []
        link: Any = self
        self.link = ReplicationLink(link, on=on)

    def ask(
        self, answer: type, question: Any, processes: list[str], wait_ms: int = 0
    ) -> dict[str, Any]:
        assert processes == ["replication"]
        self.asked.append(question)
        if self.silent:
            return {"replication": None}
        reply = self.changed if isinstance(question, ChangeLink) else self._links(question)
        assert isinstance(reply, answer)
        return {"replication": reply}

    def _links(self, ask: AskLinks) -> Links:
        return Links(
            ask.cid, list(self.rows), 90, self.through, self.needed, self.origins,
            ranges=self.ranges,
        )  # fmt: skip
