"""Message types: what the bytes of a payload mean. Pure.

| type | what `decode` gives |
|---|---|
| `json` | any value of JSON |
| `msgpack` | any value of msgpack; a map of more than 64 entries has keys of text or binary |
| `nvfix` | a map of names to values: `name=value` fields, each ended by SOH (0x01) |
| `fix` | a map of tags (numbers) to values: `tag=value` fields, likewise |
| `binary` | None: it has no fields |
| `auto` | as `json` where it is JSON, else as `binary` |

`decode` is for whoever looks into a payload, `show` for whoever prints it.
"""

from zbroker.formats.decoding import TYPES, FormatError, decode
from zbroker.formats.showing import show

__all__ = ["TYPES", "FormatError", "decode", "show"]
