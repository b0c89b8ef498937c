"""Payloads as tools print them: values that JSON can say, whatever the bytes are."""

from __future__ import annotations

import math
from base64 import b64encode
from datetime import datetime
from typing import Any

import msgspec

from zbroker.formats.decoder import FormatError, decode


def show(type: str, data: bytes) -> Any:  # noqa: A002, ANN401 - a value of JSON
    """A payload as a value of JSON.

    Bytes without fields are {"text": ...} where type is "auto" and they are UTF-8, else
    {"base64": ...}; with "error" beside it where they are not what `type` says.
    Raises: ValueError for a type that there is not.
    """
    if type == "binary":
        return _base64(data)
    try:
        return _jsonable(decode("json" if type == "auto" else type, data))
    except FormatError as error:
        if type == "auto":
            return _text(data)
        return {**_base64(data), "error": error.reason}


def _text(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return _base64(data)


def _jsonable(value: Any) -> Any:  # noqa: ANN401 - what a payload may hold
    if isinstance(value, dict):
        return {_key(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, msgspec.msgpack.Ext):
        return {"ext": value.code, **_base64(bytes(value.data))}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no word for it
    return value


def _key(key: Any) -> str:  # noqa: ANN401 - msgpack takes any
    return key if isinstance(key, str) else str(_jsonable(key))


def _base64(data: bytes) -> dict[str, str]:
    return {"base64": b64encode(data).decode()}
