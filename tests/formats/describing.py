"""A message of Protocol Buffers that is described here, and one text for each message type."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2

from zbroker.formats import TYPES, MessageType, protobuf, reader

_F: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "int64": _F.TYPE_INT64, "uint64": _F.TYPE_UINT64, "int32": _F.TYPE_INT32,
    "double": _F.TYPE_DOUBLE, "string": _F.TYPE_STRING, "bytes": _F.TYPE_BYTES,
    "bool": _F.TYPE_BOOL,
}  # fmt: skip


def add(message: Any, *fields: str) -> None:
    """`name type`, `name type[]`; a type with a dot is a message, one with a # an enum."""
    for number, text in enumerate(fields, 1):
        name, kind = text.split()
        repeated = kind.endswith("[]")
        kind = kind.removesuffix("[]")
        field = message.field.add(name=name, number=number, label=3 if repeated else 1)
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type = _F.TYPE_ENUM if "#" in kind else _F.TYPE_MESSAGE
            field.type_name = "." + kind.replace("#", "")


def shop() -> Any:
    """The file with the message shop.Order and all that it imports."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    order = file.message_type.add(name="Order")
    add(
        order, "a int64", "b string", "price double", "leg shop.Order.Leg[]", "side #shop.Side",
        "at google.protobuf.Timestamp", "size google.protobuf.Int64Value",
        "tags shop.Order.TagsEntry[]", "raw bytes", "numbers int32[]", "sub shop.Order",
        "large uint64", "good bool",
    )  # fmt: skip
    add(order.nested_type.add(name="Leg"), "sym string", "n int32")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    add(entry, "key int32", "value string")
    side = file.enum_type.add(name="Side")
    side.value.add(name="BUY", number=0)
    side.value.add(name="SELL", number=1)
    add(file.message_type.add(name="Other"), "a int64")
    found = descriptor_pb2.FileDescriptorSet(file=[file])
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(found.file.add())
    return found


SHOP: Final[bytes] = shop().SerializeToString()
ORDER: Final = str(MessageType("protobuf", "shop.Order", protobuf.pruned(SHOP, "shop.Order")))
#: every message type, as others have it
KINDS: Final = tuple(ORDER if name == "protobuf" else name for name in TYPES)


def order(**fields: Any) -> Any:
    """A message shop.Order."""
    read = reader(ORDER)
    assert isinstance(read, protobuf.ProtobufReader)
    return read.parse(b"").__class__(**fields)
