"""Message types by value: a text that says all that is needed to read a payload.

    json
    protobuf;message=shop.Order;descriptors=<base64 of a FileDescriptorSet>

A queue definition or a Spark plan, which store the text, read payloads the same way whatever a
config says later. So it is text everywhere, and compared as text.
"""

from __future__ import annotations

import importlib
from base64 import b64decode, b64encode
from types import ModuleType
from typing import Final

import msgspec

from zbroker.errors import ClientError, ZBrokerError

NAMES: Final = ("auto", "json", "msgpack", "nvfix", "fix", "binary", "bson", "protobuf", "xml")

#: message type -> the extra that brings its package, which is loaded for the first payload
EXTRAS: Final = {"bson": "bson", "protobuf": "protobuf"}
_MODULES: Final = {"bson": "bson", "protobuf": "google.protobuf.message"}

_MESSAGE: Final = "message="
_DESCRIPTORS: Final = "descriptors="


class MessageType(msgspec.Struct, frozen=True, omit_defaults=True):
    """name: one of NAMES. message, descriptors: of protobuf, the full name of the message and a
    FileDescriptorSet that has it with all it imports.
    """

    name: str
    message: str = ""
    descriptors: bytes = b""

    def __str__(self) -> str:
        if not self.message:
            return self.name
        descriptors = b64encode(self.descriptors).decode()
        return f"{self.name};{_MESSAGE}{self.message};{_DESCRIPTORS}{descriptors}"


def parse(text: str) -> MessageType:
    """The type that a text describes. Raises: ClientError bad_field."""
    name, *parts = text.split(";")
    if name not in NAMES:
        reason = f"{name[:32]!r} is none of the message types {', '.join(NAMES)}"
        raise ClientError("bad_field", reason)
    if not parts:
        return MessageType(name)
    try:
        message, descriptors = parts
        if not message.startswith(_MESSAGE) or not descriptors.startswith(_DESCRIPTORS):
            raise ValueError
        found = b64decode(descriptors.removeprefix(_DESCRIPTORS), validate=True)
    except ValueError:
        raise ClientError("bad_field", f"this is not a {name} type: {text[:64]!r}") from None
    return MessageType(name, message.removeprefix(_MESSAGE), found)


def name_of(text: str) -> str:
    """The name that a type's text begins with."""
    return text.partition(";")[0]


def check(name: str) -> None:
    """Raises: ZBrokerError missing_package, if the message type `name` cannot be read here."""
    if name in _MODULES:
        load(name, _MODULES[name])


def load(name: str, module: str) -> ModuleType:
    """A module of the package that the message type `name` needs. Raises: as `check`."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ZBrokerError(
            "missing_package",
            f"the message type {name!r} needs a package that is not installed",
            f"pip install 'zbroker[{EXTRAS[name]}]'",
        ) from None
