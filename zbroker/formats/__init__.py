"""Message types: what the bytes of a payload mean. Pure.

| type | what `decode` gives |
|---|---|
| `json` | any value of JSON |
| `msgpack` | any value of msgpack; a map of more than 64 entries has keys of text or binary |
| `nvfix` | a map of names to values: `name=value` fields, each ended by SOH (0x01) |
| `fix` | a map of tags (numbers) to values: `tag=value` fields, likewise |
| `bson` | a map; its own types become plain values (`bson`) |
| `protobuf` | a map by the descriptors of a message, which the type has in it (`protobuf`) |
| `xml` | a map with the root element (`xml`) |
| `binary` | None: it has no fields |
| `auto` | as `json` where it is JSON, else as `binary` |

`decode` is for code that looks into a payload, `show` for code that prints it.
"""

from zbroker.formats.decoder import TYPES, FormatError, decode, reader, show
from zbroker.formats.protobuf import type_of as protobuf_type
from zbroker.formats.types import MessageType, name_of
from zbroker.formats.types import check as check_package

__all__ = [
    "TYPES",
    "FormatError",
    "MessageType",
    "check_package",
    "decode",
    "name_of",
    "protobuf_type",
    "reader",
    "show",
]
