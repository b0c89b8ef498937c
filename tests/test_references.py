"""Structs that the garbage collector does not follow (gc=False) must not be part of a cycle."""

from __future__ import annotations

import importlib
import pkgutil

import msgspec

import zbroker


def _structs() -> list[type[msgspec.Struct]]:
    for module in pkgutil.walk_packages(zbroker.__path__, "zbroker."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:  # an extra that is not installed
                continue
    found, todo = [], [msgspec.Struct]
    while todo:
        for each in todo.pop().__subclasses__():
            todo.append(each)
            if each.__module__.startswith("zbroker."):
                found.append(each)
    return found


def test_what_is_not_followed_holds_no_error() -> None:
    """A raised error has a traceback, whose frames have the object that keeps the error.

    A subscription that was refused was never collected, with the descriptor that it has.
    """
    wrong = []
    for each in _structs():
        for name, kind in each.__annotations__.items():
            if not each.__struct_config__.gc and "Error" in str(kind):
                wrong.append(f"{each.__module__}.{each.__name__}.{name}: {kind}")
    assert wrong == []
