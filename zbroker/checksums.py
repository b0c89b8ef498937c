"""CRC-32C of any buffer, by the package crc32c.

Its C module is loaded by itself: the package reads the metadata of all that is installed to know
its own version, which would be 20 ms of every start.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c
else:
    _package = find_spec("crc32c")
    _spec = PathFinder.find_spec("crc32c._crc32c", _package.submodule_search_locations)
    _module = module_from_spec(_spec)
    _spec.loader.exec_module(_module)
    crc32c = _module.crc32c

__all__ = ["crc32c"]
