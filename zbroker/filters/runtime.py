"""What compiled filters call besides the operators of `values` and `arithmetic`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from zbroker.filters import values


def coalesce(*items: Any) -> Any:  # noqa: ANN401 - what a payload may hold
    """The first that is not NULL."""
    return next((item for item in items if not values.is_null(item)), None)


def in_seconds(time_ns: int) -> float | None:
    """A log time as seconds since 1970; 0 is none."""
    return time_ns / 1_000_000_000 if time_ns else None


def key_text(key: bytes | None) -> str | bytes | None:
    """A key as text; one that is not UTF-8 is opaque."""
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return key


def affix_test(texts: tuple[str, ...], at: Literal["begin", "end"]) -> Callable[[str], bool]:
    """What tells whether a text begins, or ends, with one of `texts`."""
    if at == "begin":
        return lambda text: text.startswith(texts)
    return lambda text: text.endswith(texts)


def among(literals: Sequence[Any]) -> Callable[[Any], values.Truth]:
    """IN of constants: by two sets, whatever the value is."""
    known = [each for each in literals if not values.is_null(each)]
    missed = None if len(known) < len(literals) else False
    texts = frozenset(each for each in known if isinstance(each, str))
    own = frozenset(each for each in known if not isinstance(each, str))
    spelled = own | {n for n in map(values.number_in, texts) if n is not None}

    def test(item: Any) -> values.Truth:  # noqa: ANN401 - what a payload may hold
        if item.__class__ is list:
            return values.any_of(map(plain, item)) if item else None
        return plain(item)

    def plain(item: Any) -> values.Truth:  # noqa: ANN401 - what a payload may hold
        found = values.scalar(item)
        if found is None:
            return None
        if found.__class__ is not str:
            return found in spelled or missed
        if found in texts:
            return True
        number = values.number_in(found) if own else None
        return (number is not None and number in own) or missed

    return test
