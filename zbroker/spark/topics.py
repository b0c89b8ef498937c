"""Which topics a range wants: all, one by name, or those whose whole name RE2 matches."""

from __future__ import annotations

from collections.abc import Callable

import re2

from zbroker.errors import ClientError

Matcher = Callable[[str], bool]


def matcher(topic: str | None, regex: bool) -> Matcher:
    """Raises: ClientError bad_filter."""
    if topic is None:
        return lambda _: True
    if not regex:
        return lambda name: name == topic
    try:
        pattern = re2.compile(topic)
    except re2.error as error:
        raise ClientError("bad_filter", f"{topic!r} is not an RE2 pattern: {error}") from None
    return lambda name: pattern.fullmatch(name) is not None
