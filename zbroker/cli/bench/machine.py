"""What figures depend on: this machine, and how durable the broker is."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from typing import Any, Final

import zbroker
from zbroker.cli.reaching import Broker
from zbroker.control.target import Admin, log_on
from zbroker.errors import ZBrokerError

UNKNOWN: Final = "unknown"


def document(broker: Broker) -> dict[str, Any]:
    """With stable keys. What the admin does not tell us is unknown: it is for its own host."""
    journal, version = {}, UNKNOWN
    with suppress(ZBrokerError):
        session = log_on(broker.url, broker.credentials)
        token = session.token if broker.credentials else ""
        status = Admin(session.admin, token=token).ask("/status")
        journal, version = status.get("journal", {}), status.get("version", UNKNOWN)
    return {
        "url": broker.url,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "client_version": zbroker.__version__,
        "broker_version": version,
        "durability": journal.get("durability", UNKNOWN),
        "encrypted": broker.credentials is not None,
    }
