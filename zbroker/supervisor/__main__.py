"""`python -m zbroker.supervisor` is `zbroker start`."""

from __future__ import annotations

from zbroker.cli.start import start

start()
