"""Limits that depend on each other."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest
import zmq

import zbroker
from zbroker.client.link import ClientLink
from zbroker.config.tree import LimitsConfig
from zbroker.limits import STORED_MAX_BYTES
from zbroker.wire import bodies

PACKAGE = Path(zbroker.__file__).parent
INCOMING = {"ingest"}  # what limits the size of what is published
KNOWN = {"STORED_MAX_BYTES", "body_max", "len(body)"}  # body_max: handed down from one of them
READING = {"unpack", "inflate", "check_packed"}


def settable(field):
    """The highest value that a setting of [limits] can have."""
    found = next(one for one in msgspec.inspect.type_info(LimitsConfig).fields if one.name == field)
    kind = found.type
    while isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    return kind.le


@pytest.mark.parametrize("field", ["message_bytes", "batch_bytes"])
def test_a_reader_takes_what_any_setting_could_let_into_the_log(field):
    size = settable(field)
    framing = len(bodies.pack([b""])) + 4  # a binary of 4 GiB announces its length in four bytes
    assert size + framing <= STORED_MAX_BYTES


def test_a_client_accepts_a_frame_with_the_largest_message():
    context = zmq.Context()
    link = ClientLink(context, "tcp://127.0.0.1:9")
    try:
        assert link.socket.getsockopt(zmq.MAXMSGSIZE) >= STORED_MAX_BYTES
    finally:
        link.close()
        context.term()


def test_only_what_comes_in_is_held_against_the_limits_of_now():
    """Whatever decodes a body elsewhere passes the one constant for what is stored."""
    checked = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] in INCOMING or path.name == "bodies.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in READING
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("bodies", "packed")
                and len(node.args) > 2
            ):
                last = node.args[-1]
                assert ast.unparse(last) in KNOWN, f"{path}:{node.lineno}"
                checked += 1
    assert checked >= 6, "it looks for something that is not there any more"
