"""Message types of `[[record]]` tables: what they need is there, and is read once."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from zbroker.config.record import RecordConfig
from zbroker.errors import ZBrokerError

_PACKAGED: Final = frozenset({"bson", "protobuf"})
_FILE_MAX_BYTES: Final = 1 << 24  # of descriptors with all comments


class BadType(ZBrokerError):
    """The type of a table cannot be used, because of what `key` says."""

    key = "type"


def described(record: RecordConfig) -> RecordConfig:
    """The table with the descriptors of its message. Raises: BadType."""
    if record.type not in _PACKAGED:
        _refuse_keys(record)
        return record
    # few instances have such a type, and the imports take time
    from zbroker.formats import check_package, protobuf

    try:
        check_package(record.type)
    except ZBrokerError as error:
        raise _bad("type", error.reason, error.hint) from None
    if record.type != "protobuf":
        _refuse_keys(record)
        return record
    for key in ("message", "descriptors"):
        if not getattr(record, key):
            raise _bad(key, f"a record of type protobuf needs `{key}`", protobuf.HINT)
    try:
        return msgspec.structs.replace(
            record, described=protobuf.pruned(_read(record.descriptors), record.message)
        )
    except BadType:
        raise
    except ZBrokerError as error:
        raise _bad("message", error.reason, error.hint) from None


def _refuse_keys(record: RecordConfig) -> None:
    for key in ("message", "descriptors"):
        if getattr(record, key):
            raise _bad(key, f"`{key}` goes with type protobuf only", "take it away")


def _read(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        reason = f"{path}: {error.strerror}"
        raise _bad("descriptors", reason, "name a file that this user may read") from None
    if len(data) > _FILE_MAX_BYTES:
        reason = f"{path} has {len(data)} bytes, {_FILE_MAX_BYTES} are allowed"
        raise _bad("descriptors", reason, "describe fewer messages")
    return data


def _bad(key: str, reason: str, hint: str) -> BadType:
    error = BadType("bad_config", reason, hint)
    error.key = key
    return error
