"""`python -m zbroker.replication --data-dir DIR [-c FILE]`: this process by hand."""

from __future__ import annotations

from zbroker.supervisor.child import main

main("replication")
