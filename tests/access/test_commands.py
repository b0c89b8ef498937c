"""Every command of every endpoint is in a table of rights: a new one fails here first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from zbroker.access.grants import ACTIONS
from zbroker.wire import branches as b
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import stages
from zbroker.wire import transactions as t

ACCESS = Path(__file__).parents[2] / "docs" / "reference" / "access.md"
INGEST = (*get_args(m.IngestCommand), stages.CommitStaged, stages.AbortStaged)

#: What each command needs: an action of the access file, or why it needs none.
OWN = "it is about what the same connection was entitled to before"
SEEN = "it shows what the principal has a right to, and leaves out the rest"
RIGHTS = {
    "ingest": {
        "logon": "a key, and a client name of its principal",
        "publish": "publish",
        "commit": "publish",
        "abort": "publish",
        "flush": OWN,
        "heartbeat": OWN,
        "logoff": OWN,
    },
    "delivery": {
        "logon": "a token, with its key and its name",
        "subscribe": "subscribe",
        "ranges": "replay",
        "replace": "subscribe",
        "flow": OWN,
        "pause": OWN,
        "resume": OWN,
        "unsubscribe": OWN,
        "heartbeat": OWN,
        "logoff": OWN,
    },
    "queues": {
        "logon": "a token, with its key and its name",
        "consume": "consume",
        "browse": "consume",
        "ack": "consume",
        "release": "consume",
        "reject": "consume",
        "extend": "consume",
        "declare_queue": "configure",
        "delete_queue": "configure",
        "purge_queue": "configure",
        "declare_exchange": "configure",
        "delete_exchange": "configure",
        "bind_queue": "bind",
        "unbind_queue": "bind",
        "list_exchanges": SEEN,
        "list_bindings": SEEN,
        "attach_session": OWN,
        "detach_session": OWN,
        "commit_transaction": OWN,
        "prepare_transaction": OWN,
        "decide_branch": "dtx_admin",
        "list_branches": "dtx_admin",
        "cancel": OWN,
        "flow": OWN,
        "set_flow_mode": OWN,
        "stop": OWN,
        "flush": OWN,
        "acquire": OWN,
        "heartbeat": OWN,
        "logoff": OWN,
    },
}
COMMANDS = {
    "ingest": INGEST,
    "delivery": get_args(m.DeliveryCommand),
    "queues": [
        one for union in (q.QueuesCommand, t.ToQueues, b.ToQueues) for one in get_args(union)
    ],
}


@pytest.mark.parametrize("endpoint", COMMANDS)
def test_every_command_has_its_right(endpoint: str) -> None:
    tags = {str(msgspec.inspect.type_info(one).tag) for one in COMMANDS[endpoint]}  # type: ignore[attr-defined]
    assert tags == set(RIGHTS[endpoint])


@pytest.mark.parametrize("endpoint", COMMANDS)
def test_the_page_says_which_commands_an_action_is_needed_for(endpoint: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", ACCESS.read_text(), re.MULTILINE)
    needed_for = dict(rows)
    for command, right in RIGHTS[endpoint].items():
        if right in ACTIONS and command != "replace":  # it has the right of its subscription
            assert f"`{command}`" in needed_for[right], (endpoint, command)


def test_every_action_for_clients_is_needed_for_a_command() -> None:
    used = {right for rows in RIGHTS.values() for right in rows.values()}
    assert set(ACTIONS) - used == {"replicate", "admin_read", "admin_write"}
