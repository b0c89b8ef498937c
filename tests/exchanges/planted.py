"""Bugs planted in a module: its source with one text replaced, as a module of its own."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType


def planted(module: ModuleType, right: str, wrong: str) -> ModuleType:
    """`module` with `wrong` in place of `right`, which has to be in it once."""
    source = inspect.getsource(module)
    assert source.count(right) == 1, f"{right!r} is {source.count(right)} times in {module}"
    made = ModuleType(f"planted_{module.__name__}")
    # classes look up the module that they are of while they are made
    sys.modules[made.__name__] = made
    try:
        exec(compile(source.replace(right, wrong), made.__name__, "exec"), made.__dict__)
    finally:
        del sys.modules[made.__name__]
    return made
