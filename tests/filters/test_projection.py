"""What `select` keeps of payloads (zbroker/filters/projection)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters import making
from tests.formats.describing import KINDS, ORDER
from zbroker.errors import ClientError
from zbroker.filters import compile_select
from zbroker.filters.limits import SELECT_ENTRIES_MAX, SELECT_MAX_CHARS
from zbroker.formats import TYPES, FormatError, decode


@pytest.mark.parametrize(
    ("text", "payload", "kept"),
    [
        ("-/,+/a,+/b/c", b'{"a":1,"b":{"c":2,"d":3},"e":4}', b'{"a":1,"b":{"c":2}}'),
        ("-/secret", b'{"a":1,"secret":2}', b'{"a":1}'),
        ("-/b,+/b/c", b'{"a":1,"b":{"c":2,"d":3}}', b'{"a":1,"b":{"c":2}}'),
        ("-/b,+/b/c", b'{"a":1,"b":{"d":3}}', b'{"a":1}'),
        ("-/b,+/b/c", b'{"a":1,"b":[1]}', b'{"a":1}'),
        ("-/b/c", b'{"a":1,"b":{"c":3}}', b'{"a":1,"b":{}}'),
        ("-/b/c", b'{"b":5}', b'{"b":5}'),
        ("-/ , +[/odd name] ", b'{"odd name":1,"b":5}', b'{"odd name":1}'),
        ("-/,+/a", b'{"b":1}', b"{}"),
        ("+/a", b'{"a":1,"b":2}', b'{"a":1,"b":2}'),
        ("-/,+/n", b'{"n": 1.50, "m": 2}', b'{"n":1.50}'),
        ("-/,+/n", b'{"n":123456789012345678901234567890,"m":2}',
         b'{"n":123456789012345678901234567890}'),
        ("-/a", b'{"a":1,"z":"\xff"}', b'{"a":1,"z":"\xff"}'),
        ("-/a", b"[1,2]", b"[1,2]"),
        ("-/", b"5", b"5"),
        ("-/a", b'{"a":1', b'{"a":1'),
    ],
)  # fmt: skip
def test_what_is_selected_of_json_is_kept(text: str, payload: bytes, kept: bytes) -> None:
    assert compile_select(text).apply("json", payload) == kept


@pytest.mark.parametrize(
    ("type_", "text", "payload", "kept"),
    [
        ("nvfix", "-/b", b"a=1\x01b=2\x01a=3\x01", b"a=1\x01a=3\x01"),
        ("nvfix", "-/b", b"a=1\x01b=2", b"a=1"),
        ("nvfix", "-/,+/z", b"a=1\x01b=2\x01", b""),
        ("nvfix", "-/b", b"", b""),
        ("nvfix", "-/b", b"b", b"b"),
        ("fix", "-/,+/35,+/96", b"35=D\x0195=3\x0196=a\x01b\x0110=1\x01", b"35=D\x0196=a\x01b\x01"),
        ("fix", "-/44,-/x", b"35=D\x0144=1\x0144=2\x01", b"35=D\x01"),
        ("fix", "-/96", b"95=2\x0196=\xff\x01\x0110=1", b"95=2\x0110=1"),
        ("binary", "-/", b'{"a":1}', b'{"a":1}'),
        ("auto", "-/,+/a", b'{"a":1,"b":2}', b'{"a":1}'),
        ("auto", "-/,+/a", b"no json", b"no json"),
    ],
)
def test_what_is_selected_of_other_types_is_kept(
    type_: str, text: str, payload: bytes, kept: bytes
) -> None:
    assert compile_select(text).apply(type_, payload) == kept


def test_numbers_for_keys_of_msgpack_are_selected_by_name() -> None:
    payload = msgspec.msgpack.encode({35: "D", "35": "text", 44: 1, b"a": 2})
    kept = compile_select("-/,+/35").apply("msgpack", payload)
    assert msgspec.msgpack.decode(kept) == {35: "D", "35": "text"}


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("/a", 1),
        ("+", 2),
        ("-/,", 4),
        ("-/,,+/a", 4),
        ("-/, /a", 4),
        ("-/a[0]", 2),
        ("+/a,-/a", 6),
        ("+/a//b", 4),
        ("+/a b", 4),
        ("-/" + " " * SELECT_MAX_CHARS, SELECT_MAX_CHARS + 1),
        (",".join(f"+/{n}" for n in range(SELECT_ENTRIES_MAX + 1)), 2891),
    ],
)
def test_a_bad_select_is_refused_with_its_column(text: str, column: int) -> None:
    with pytest.raises(ClientError, match=rf"column {column} of select: ") as refused:
        compile_select(text)
    assert refused.value.code == "bad_field"


def test_a_select_for_a_type_that_there_is_not_is_our_mistake() -> None:
    with pytest.raises(ValueError, match="'avro' is none of the message types"):
        compile_select("-/a").apply("avro", b"")


def projected(value: Any, entries: dict[tuple[str, ...], bool], at: tuple[str, ...] = ()) -> Any:
    """The model: every leaf is asked for the longest entry above it."""
    below = [path for path in entries if len(path) > len(at) and path[: len(at)] == at]
    if isinstance(value, dict) and (below or not at):
        parts = {key: projected(item, entries, (*at, key)) for key, item in value.items()}
        kept = {key: part for key, part in parts.items() if part is not ABSENT}
        return kept if kept or keeps(at, entries) or not at else ABSENT
    return value if keeps(at, entries) else ABSENT


ABSENT = object()


def keeps(at: tuple[str, ...], entries: dict[tuple[str, ...], bool]) -> bool:
    above = [at[:length] for length in range(len(at), -1, -1)]
    return next((entries[path] for path in above if path in entries), True)


names = st.sampled_from(["a", "b", "c d"])
chosen = st.dictionaries(st.lists(names, max_size=3).map(tuple), st.booleans(), min_size=1)


@pytest.mark.parametrize("type_", ["json", "msgpack"])
@given(entries=chosen, value=making.objects)
@settings(deadline=None)
def test_a_selection_is_that_of_the_model(
    type_: str, entries: dict[tuple[str, ...], bool], value: dict[str, Any]
) -> None:
    text = ",".join(f"{'-+'[keep]}[/{'/'.join(path)}]" for path, keep in entries.items())
    select = compile_select(text.replace("[/]", "/"))
    codec = getattr(msgspec, type_)
    assert codec.decode(select.apply(type_, codec.encode(value))) == projected(value, entries)


@pytest.mark.parametrize("type_", KINDS, ids=TYPES)
@given(data=st.data())
@settings(deadline=None)
def test_bytes_that_are_not_what_the_type_says_come_back(type_: str, data: Any) -> None:
    payload = data.draw(making.payloads(type_))
    kept = compile_select("-/a,-/35").apply(type_, payload)
    try:
        value = decode(type_, payload)
    except FormatError:
        value = None
    if not isinstance(value, dict):
        assert kept == payload
    else:
        names = {"a", "35", 35} if type_ in ("fix", "msgpack") else {"a", "35"}
        left = {key: item for key, item in value.items() if key not in names}
        if type_ == ORDER:
            left = {"a": 0} | left  # the default of what is left out
        elif type_ == "xml":
            left = left or dict.fromkeys(value, "")  # a document has a root
        assert repr(decode(type_, kept)) == repr(left)


@given(st.text(st.sampled_from("+-/,[]ab 01"), max_size=12))
def test_any_text_is_a_select_or_refused(text: str) -> None:
    try:
        compile_select(text).apply("json", b'{"a":{"b":1},"b":2}')
    except ClientError as refused:
        code = refused.code
    else:
        code = "bad_field"
    assert code == "bad_field"
