"""The settings of what is recorded: `[[record]]`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from zbroker.config.units import LAUNCH
from zbroker.formats.types import MessageType


class RecordConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What is recorded in the log; without any such table: what [journal] record says.

    A topic is recorded if one of the tables fits; the first that fits says its type. What is not
    recorded is live only: subscribers get it as it comes, nothing of it can be read again.
    """

    topic: Annotated[
        str, Meta(min_length=1, description="A topic, or a pattern of topics with regex = true.")
    ]
    regex: Annotated[bool, Meta(description="The topic is an RE2 pattern.")] = False
    type: Annotated[
        Literal["auto", "json", "msgpack", "nvfix", "fix", "binary", "bson", "protobuf", "xml"],
        Meta(
            description='How filters, keys and tools read payloads; "auto": as JSON where they\n'
            'are, else binary. "bson" and "protobuf" need the extra of that name.'
        ),
    ] = "auto"
    message: Annotated[
        str, Meta(description='Of type "protobuf": the full name of the message, "shop.Order".')
    ] = ""
    descriptors: Annotated[
        str,
        Meta(
            description="Of the same: a file that describes it and all it imports, made by\n"
            "`protoc --include_imports --descriptor_set_out=FILE`. Read once, at the start."
        ),
    ] = ""
    filter: Annotated[
        str,
        Meta(
            description='Records only messages this is true for, read by `type`: "/price > 100";\n'
            'the others are live only. "" is all.'
        ),
    ] = ""
    #: what `descriptors` had for `message` when the instance started
    described: Annotated[bytes, Meta(extra=LAUNCH)] = b""

    @property
    def payload_type(self) -> str:
        """The type with all that is needed to read a payload."""
        return str(MessageType(self.type, self.message, self.described))
