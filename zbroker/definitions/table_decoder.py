"""A `[[queue]]` table that comes as a map, from the admin or the log, to a QueueConfig. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from zbroker.config.queues import QueueConfig
from zbroker.config.tree import fields
from zbroker.config.units import UNITS, read_unit
from zbroker.definitions.impossible import bad_queue

_AT: Final = re.compile(r" - at `\$\.?([A-Za-z_0-9]*)[^`]*`")


def read_table(table: Mapping[str, Any]) -> QueueConfig:
    """The settings in a map with the keys of a [[queue]] table; "30s" is taken as in the file.

    Raises: BadQueue, naming the key; whether there can be such a queue is not asked.
    """
    known = {one.name: one for one in fields(QueueConfig)}
    read = {}
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1, 0.5)
            hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(known)}"
            raise bad_queue("name", f"unknown key `{str(key)[:64]}` of a queue", hint)
        name = (known[key].meta.extra or {}).get("unit")
        try:
            read[key] = read_unit(value, name)
        except ValueError as error:
            raise bad_queue(key, f"`{key}`: {error}", UNITS[name].hint if name else "") from None
    try:
        return msgspec.convert(read, QueueConfig)
    except msgspec.ValidationError as error:
        at = _AT.search(str(error))
        found = at[1] if at and at[1] in known else "name"
        reason = f"`{found}`: {_AT.sub('', str(error))}"
        told = known[found].meta.description or ""
        raise bad_queue(found, reason, " ".join(told.splitlines())) from None
