"""Keys of a queue's definition as people write them: `"30s"`, `"10GiB"`. Pure.

What belongs together, and what can be changed, the queues room decides: here each value has its
type, and a name that nobody knows has a neighbour.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, get_origin, get_type_hints

import msgspec

from zbroker.config.queues import QueueConfig
from zbroker.config.tree import ConfigKey, fields
from zbroker.config.units import UNITS, read_unit
from zbroker.errors import ClientError

CODE: Final = "bad_queue"


def definition(given: Mapping[str, Any], *, texts: bool = False) -> dict[str, Any]:
    """The same in ms and bytes. texts: every value is text, as on a command line.

    Raises: ClientError bad_queue.
    """
    return {key: _value(_field(key), value, texts) for key, value in given.items()}


def keys() -> list[str]:
    """What a definition may have; the name of a queue stands elsewhere."""
    return [key for key in _fields() if key != "name"]


@cache
def _fields() -> dict[str, ConfigKey]:
    return {one.name: one for one in fields(QueueConfig)}


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(QueueConfig, include_extras=True)


def _field(key: str) -> ConfigKey:
    if key in keys():
        return _fields()[key]
    near = difflib.get_close_matches(key, keys(), 1, 0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(keys())}"
    raise ClientError(CODE, f"a queue has no `{key[:64]}`", hint)


def _value(field: ConfigKey, value: Any, texts: bool) -> object:  # noqa: ANN401 - a value of JSON
    if texts and get_origin(field.type) is list:
        value = [part for part in map(str.strip, value.split(",")) if part]
    unit = (field.meta.extra or {}).get("unit")
    try:
        read = read_unit(value, unit)
        return msgspec.convert(read, _types()[field.name], strict=not texts)
    except (msgspec.ValidationError, ValueError) as error:
        told = UNITS[unit].hint if unit else (field.meta.description or "").replace("\n", " ")
        raise ClientError(CODE, f"`{field.name}`: {error}", told) from None
