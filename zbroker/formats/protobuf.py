"""Protocol Buffers, by Google's package: a payload is one message of a type that is described.

| field | value |
|---|---|
| scalar | itself; bytes stay bytes. One that cannot be absent has its default |
| enum | the name of its value, or the number where it has none |
| message | a map by the names of the `.proto` file; absent: not there |
| repeated, map | an array; a map whose keys are text |
| `google.protobuf.Timestamp` | a time; outside of the years 1 to 9999 a map |
| `google.protobuf.Int64Value` and the like | the value in it |

A submessage may take two bytes of a payload and kilobytes of memory, so its bytes are bounded by
what its largest message takes, and the number of values of a payload has a limit, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, Final

from zbroker.errors import ClientError
from zbroker.formats import types
from zbroker.formats.pairs import Malformed
from zbroker.formats.types import MessageType
from zbroker.limits import KIB, MIB

DEPTH_MAX: Final = 64
VALUES_MAX: Final = 1 << 20  # of a payload, with the defaults of its submessages
PARSED_MAX_BYTES: Final = 256 * MIB  # that a payload may take when it is parsed
DESCRIPTORS_MAX_BYTES: Final = 64 * KIB  # without comments; a config hands them to each process

_MESSAGE_BYTES: Final = 64  # of an empty message, parsed
_FIELD_BYTES: Final = 16  # of each of its fields, whether it is there or not
HINT: Final = "protoc --include_imports --descriptor_set_out=FILE makes it"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def type_of(descriptors: bytes, message: str) -> str:
    """The message type of a message that a FileDescriptorSet describes.

    Raises: ClientError bad_field; ZBrokerError missing_package.
    """
    return str(MessageType("protobuf", message, pruned(descriptors, message)))


def pruned(descriptors: bytes, message: str) -> bytes:
    """The part of a FileDescriptorSet that `message` needs, each file after those it imports.

    Raises: ClientError bad_field; ZBrokerError missing_package.
    """
    pb2 = types.load("protobuf", "google.protobuf.descriptor_pb2")
    decode_error = types.load("protobuf", "google.protobuf.message").DecodeError
    try:
        files = {one.name: one for one in pb2.FileDescriptorSet.FromString(descriptors).file}
    except decode_error:
        raise ClientError("bad_field", "the file is not a FileDescriptorSet", HINT) from None
    first = next((one for one in files.values() if message in _messages_of(one)), None)
    if first is None:
        known = sorted(name for one in files.values() for name in _messages_of(one))
        hint = f"there are: {', '.join(known[:20])}" if known else HINT
        raise ClientError("bad_field", f"the file describes no message {message!r}", hint)
    found = pb2.FileDescriptorSet(file=_needed(files, first))
    for one in found.file:
        one.ClearField("source_code_info")
    data: bytes = found.SerializeToString(deterministic=True)
    if len(data) > DESCRIPTORS_MAX_BYTES:
        reason = (
            f"what {message!r} needs has {len(data)} bytes, {DESCRIPTORS_MAX_BYTES} are allowed"
        )
        raise ClientError("bad_field", reason, "describe it without the files it does not use")
    reader(data, message)
    return data


def _messages_of(file: Any) -> list[str]:  # noqa: ANN401 - a FileDescriptorProto
    """Full names, also of messages in messages."""
    prefix = f"{file.package}." if file.package else ""
    found = [(prefix + one.name, one) for one in file.message_type]
    for name, one in found:  # grows
        found += [(f"{name}.{inner.name}", inner) for inner in one.nested_type]
    return [name for name, _ in found]


def _needed(files: dict[str, Any], first: Any) -> list[Any]:  # noqa: ANN401 - as above
    """A file and all that it imports, imports first. Raises: ClientError."""
    done: dict[str, Any] = {}
    waiting = [(first, False)]
    while waiting:
        file, ready = waiting.pop()
        if ready:
            done.setdefault(file.name, file)
            continue
        if file.name in done:
            continue
        waiting.append((file, True))
        for name in file.dependency:
            if name not in files:
                reason = f"the file imports {name!r}, which is not in it"
                raise ClientError("bad_field", reason, HINT)
            if name not in done:
                waiting.append((files[name], False))
    return list(done.values())


@lru_cache(maxsize=64)
def reader(descriptors: bytes, message: str) -> ProtobufReader:
    """What reads payloads of one message. Raises: ClientError bad_field."""
    pb2 = types.load("protobuf", "google.protobuf.descriptor_pb2")
    pools = types.load("protobuf", "google.protobuf.descriptor_pool")
    factory = types.load("protobuf", "google.protobuf.message_factory")
    errors = types.load("protobuf", "google.protobuf.message")
    pool = pools.DescriptorPool()
    try:
        for file in pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.AddSerializedFile(file.SerializeToString())
        made = factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except (TypeError, KeyError, errors.DecodeError) as error:
        reason = f"{message!r} cannot be made of its descriptors: {error}"
        raise ClientError("bad_field", reason, HINT) from None
    return ProtobufReader(made, errors.DecodeError)


class ProtobufReader:
    """Reads payloads of one message."""

    def __init__(self, made: Any, decode_error: type[Exception]) -> None:  # noqa: ANN401 - a class
        self._made = made
        self._broken = (decode_error, UnicodeDecodeError, ValueError)
        self.bytes_max = _bytes_max(made.DESCRIPTOR)

    def __call__(self, data: bytes) -> dict[str, Any]:
        """The map of a payload. Raises: Malformed."""
        message = self.parse(data)
        budget = iter(range(VALUES_MAX))
        try:
            return _map(message, budget, DEPTH_MAX)
        except UnicodeDecodeError as error:
            raise Malformed(str(error)) from None

    def parse(self, data: bytes) -> Any:  # noqa: ANN401 - a message
        """The message of a payload. Raises: Malformed."""
        if len(data) > self.bytes_max:
            raise Malformed(f"it has {len(data)} bytes, {self.bytes_max} of this message are read")
        try:
            return self._made.FromString(data)
        except self._broken as error:
            raise Malformed(str(error) or type(error).__name__) from None


def _bytes_max(descriptor: Any) -> int:  # noqa: ANN401 - a descriptor
    """The longest payload: every two of its bytes may be one of the largest submessages."""
    known: dict[str, Any] = {}
    waiting = [descriptor]
    while waiting:
        for field in waiting.pop().fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in known:
                known[inner.full_name] = inner
                waiting.append(inner)
    if not known:
        return PARSED_MAX_BYTES
    largest = max(len(one.fields) for one in known.values())
    return 2 * PARSED_MAX_BYTES // (_MESSAGE_BYTES + _FIELD_BYTES * largest)


# -- messages to maps -------------------------------------------------------------------------

Convert = Callable[[Any, Iterator[int], int], Any]


def _map(message: Any, budget: Iterator[int], depth: int) -> dict[str, Any]:  # noqa: ANN401 - any
    if not depth:
        raise Malformed(f"it is nested deeper than {DEPTH_MAX}")
    found: dict[str, Any] = {}
    for name, presence, convert in _plan(message.DESCRIPTOR):
        if presence and not message.HasField(name):
            continue
        _spend(budget)
        found[name] = convert(getattr(message, name), budget, depth - 1)
    return found


def _spend(budget: Iterator[int]) -> None:
    if next(budget, None) is None:
        raise Malformed(f"it has more than {VALUES_MAX} values")


@cache
def _plan(descriptor: Any) -> list[tuple[str, bool, Convert]]:  # noqa: ANN401 - a descriptor
    """Each field of a message: its name, whether it can be absent, and how it is read."""
    return [(one.name, one.has_presence, _converter(one)) for one in descriptor.fields]


def _converter(field: Any) -> Convert:  # noqa: ANN401 - a descriptor
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return _map_field(_single(inner.fields_by_name["value"]))
    one = _single(field)
    if not field.is_repeated:
        return one

    def several(values: Any, budget: Iterator[int], depth: int) -> list[Any]:  # noqa: ANN401
        found = []
        for value in values:
            _spend(budget)
            found.append(one(value, budget, depth))
        return found

    return several


def _map_field(one: Convert) -> Convert:
    def pairs(values: Any, budget: Iterator[int], depth: int) -> dict[str, Any]:  # noqa: ANN401
        found: dict[str, Any] = {}
        for key in values:
            _spend(budget)
            name = str(key).lower() if isinstance(key, bool) else str(key)
            found[name] = one(values[key], budget, depth)
        return found

    return pairs


def _single(field: Any) -> Convert:  # noqa: ANN401 - a descriptor
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return lambda value, _budget, _depth: names.get(value, value)
    inner = field.message_type
    if inner is None:
        return lambda value, _budget, _depth: value
    if inner.full_name == "google.protobuf.Timestamp":
        return _time
    if inner.full_name in _WRAPPERS:
        return lambda value, _budget, _depth: value.value
    return _map


def _time(message: Any, budget: Iterator[int], depth: int) -> Any:  # noqa: ANN401 - a Timestamp
    try:
        whole = datetime.fromtimestamp(message.seconds, UTC)
        return whole.replace(microsecond=message.nanos // 1_000)
    except (ValueError, OverflowError, OSError):
        return _map(message, budget, depth)
