"""`zbroker-admin replication forget` asks for it, and says what follows."""

from __future__ import annotations

from tests.cli.replication.rows import LinkChange


class TestCommand(LinkChange):
    what = "forget"
