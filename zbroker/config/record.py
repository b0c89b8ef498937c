"""The topics that are recorded: `[[record]]`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from zbroker.config.units import LAUNCH
from zbroker.formats.types import MessageType


class RecordConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The topics that the log records; without any such table, `record` of [journal] decides.

    A topic is recorded if one of the tables matches; the first that matches sets its type. Other
    topics are live only: subscribers get messages as they come, and cannot read them again.
    """

    topic: Annotated[
        str, Meta(min_length=1, description="A topic, or a pattern of topics with regex = true.")
    ]
    regex: Annotated[bool, Meta(description="The topic is an RE2 pattern.")] = False
    type: Annotated[
        Literal["auto", "json", "msgpack", "nvfix", "fix", "binary", "bson", "protobuf", "xml"],
        Meta(
            description='How filters, keys and tools read payloads; "auto": as JSON if they are,\n'
            'else binary. "bson" and "protobuf" need the extra of that name.'
        ),
    ] = "auto"
    message: Annotated[
        str, Meta(description='For type "protobuf": the full name of the message, "shop.Order".')
    ] = ""
    descriptors: Annotated[
        str,
        Meta(
            description='For type "protobuf": a file with it and all it imports, made by\n'
            "`protoc --include_imports --descriptor_set_out=FILE`. Read once, at the start."
        ),
    ] = ""
    filter: Annotated[
        str,
        Meta(
            description='Records only messages for which it is true, by `type`: "/price > 100";\n'
            'the others are live only. "" is all.'
        ),
    ] = ""
    #: the part of `descriptors` for `message`, as it was when the instance started
    described: Annotated[bytes, Meta(extra=LAUNCH)] = b""

    @property
    def payload_type(self) -> str:
        """The type, with everything needed to read a payload."""
        return str(MessageType(self.type, self.message, self.described))
