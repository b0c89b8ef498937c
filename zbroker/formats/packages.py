"""Packages that some message types need: loaded for the first payload or by a config."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final

from zbroker.errors import ZBrokerError

#: message type -> the extra that brings its package
EXTRAS: Final = {"bson": "bson", "protobuf": "protobuf"}

_MODULES: Final = {"bson": "bson", "protobuf": "google.protobuf.message"}


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
