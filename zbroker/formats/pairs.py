"""NVFIX and FIX: `key=value` fields, each ended by SOH (the last one may do without).

    nvfix   symbol=AAPL<SOH>price=101.5<SOH>
    fix     8=FIX.4.4<SOH>35=D<SOH>55=AAPL<SOH>95=3<SOH>96=a<SOH>b<SOH>10=128<SOH>

Values are text. A key that comes several times (FIX: a repeating group) has the list of its values.
FIX has data fields that may hold SOH and anything else: the field before them says how many bytes
they have; such a value is bytes where it is not UTF-8.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

SOH: Final = b"\x01"
TAGS_MAX: Final = 4_096  # different ones of a message; FIX 5.0 SP2 knows some 1,600

#: data field -> the length field right before it (FIX 5.0 SP2 and its extensions)
_LENGTH_OF: Final[dict[bytes, bytes]] = {
    b"89": b"93", b"91": b"90", b"96": b"95", b"213": b"212", b"349": b"348", b"351": b"350",
    b"353": b"352", b"355": b"354", b"357": b"356", b"359": b"358", b"361": b"360", b"363": b"362",
    b"365": b"364", b"446": b"445", b"619": b"618", b"622": b"621", b"1185": b"1184",
    b"1278": b"1277", b"1281": b"1280", b"1283": b"1282", b"1398": b"1397", b"1402": b"1401",
    b"1404": b"1403",
}  # fmt: skip

Key = TypeVar("Key", str, bytes)
Values = str | bytes | list[str | bytes]


class Malformed(ValueError):
    """The bytes are not fields."""


def by_name(data: bytes) -> dict[str, Values]:
    """The fields of an NVFIX payload. Raises: Malformed, UnicodeDecodeError."""
    found: dict[str, Values] = {}
    for field in data.removesuffix(SOH).split(SOH) if data else ():
        key, equals, value = field.partition(b"=")
        if not key or not equals:
            raise Malformed(f"{field[:32]!r} is not name=value")
        add(found, key.decode(), value.decode())
    return found


def by_tag(data: bytes) -> dict[int, Values]:
    """The fields of a FIX payload. Raises: Malformed, UnicodeDecodeError."""
    # by their bytes, whose hash has a seed; that of a number has none
    found: dict[bytes, Values] = {}
    last_key, last_value, at = b"", b"", 0
    while at < len(data):
        key, equals, _ = data[at : at + 20].partition(b"=")
        if not equals or not key.isdigit() or key.startswith(b"0"):
            raise Malformed(f"no tag=value at byte {at}")
        start = at + len(key) + 1
        if last_key and _LENGTH_OF.get(key) == last_key:
            end = _end_of_data(data, start, last_value)
            add(found, key, _text_if_it_is(data[start:end]))
        else:
            end = data.find(SOH, start)
            end = len(data) if end < 0 else end
            add(found, key, data[start:end].decode())
        last_key, last_value, at = key, data[start:end], end + 1
    if len(found) > TAGS_MAX:
        raise Malformed(f"it has {len(found)} different tags, {TAGS_MAX} are read at most")
    return {int(tag): values for tag, values in found.items()}


def _end_of_data(data: bytes, start: int, length: bytes) -> int:
    """Where a data field ends whose length field says `length`."""
    if not length.isdigit() or len(length) > 10:
        raise Malformed(f"the data field at byte {start} has no length before it")
    end = start + int(length)
    if end > len(data) or (end < len(data) and data[end : end + 1] != SOH):
        raise Malformed(f"the data field at byte {start} does not have {int(length)} bytes")
    return end


def _text_if_it_is(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def add(found: dict[Key, Any], key: Key, value: object) -> None:
    """Adds an entry; a key that comes more than once has the list of its values."""
    known = found.get(key)
    if known is None:
        found[key] = value
    elif isinstance(known, list):
        known.append(value)
    else:
        found[key] = [known, value]
