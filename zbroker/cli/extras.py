"""What a message has beside its payload, as JSON can hold it."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from zbroker.wire.bodies import Scalar


def extra_row(key: bytes | None, headers: Mapping[str, Scalar] | None) -> dict[str, Any]:
    """Key and headers under stable keys; what a message does not have is left out."""
    row: dict[str, Any] = {} if key is None else dict(text_or_base64(key, "key"))
    if headers:
        row["headers"] = {name: _plain(value) for name, value in headers.items()}
    return row


def text_or_base64(data: bytes, name: str = "data") -> dict[str, str]:
    """Under `name` if it is UTF-8, else under `<name>_base64`."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def _plain(value: Scalar) -> object:
    """Binary becomes an object, which no other header is; null replaces NaN and infinity."""
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
