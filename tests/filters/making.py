"""Random filters and payloads that meet: few names, few values, every kind of them."""

from __future__ import annotations

from functools import partial
from typing import Any
from xml.sax.saxutils import escape

import bson
import msgspec
from hypothesis import strategies as st

from tests.formats.describing import ORDER, order

NAMES = ("a", "b", "c d", "35")
TEXTS = ("", "x", "xy", "AB", "5", "-1.5", "1e2", "é", "true", 'q"', "back\\", "a b")
NUMBERS = (0, 1, 5, -1, 2.5, -1.5, 100, 2**63, -(2**63), 2**64 - 1, 1e300, 0.0)
SOH = "\x01"


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


fields = st.sampled_from(
    ["/a", "/b", "[/c d]", "/35", "/a/b", "/a[0]", "/b[1]/a", "/b[1]", "/none"]
)
constants = st.one_of(
    st.sampled_from(TEXTS).map(quoted),
    st.sampled_from(NUMBERS).map(repr),
    st.sampled_from(["true", "FALSE", "null"]),
)
solid_texts = st.sampled_from([text for text in TEXTS if text]).map(quoted)
patterns = st.sampled_from(["x", "^A", "B$", "^5$", "[0-9]+", "(?i)ab", "x.*y", "e", "1.5"])
comparisons = st.sampled_from(["=", "==", "!=", "<>", "<", "<=", ">", ">="])
message = st.sampled_from(
    ["TOPIC_NAME()", "BOOKMARK()", "MESSAGE_SIZE()", "LAST_UPDATED()", "KEY()"]
)
headers = st.sampled_from(["HEADER('a')", 'header("c d")', "HEADER('none')"])


def larger(
    inner: st.SearchStrategy[str], loaded: st.SearchStrategy[str] = fields
) -> st.SearchStrategy[str]:
    """Expressions around others. loaded: what meets constants, too."""
    no = st.sampled_from(["", "NOT "])
    lists = st.lists(inner, min_size=1, max_size=4).map(", ".join)
    text_lists = st.lists(solid_texts, min_size=1, max_size=3).map(", ".join)
    build = st.builds
    return st.one_of(
        build("({} AND {})".format, inner, inner),
        build("({} OR {})".format, inner, inner),
        build("(NOT {})".format, inner),
        build("({} {} {})".format, inner, comparisons, inner),
        build("({} {} {})".format, loaded, comparisons, constants),
        build("({} {} {})".format, constants, comparisons, loaded),
        build(
            "(IF(true, {}, 0) {} IF(true, {}, 0))".format, inner, st.sampled_from("+-*/%"), inner
        ),
        build("(- IF(true, {}, 0))".format, inner),
        build("({} {}BETWEEN {} AND {})".format, inner, no, inner, inner),
        build("({} {}IN ({}))".format, inner, no, lists),
        build("({} {}IN ({}))".format, loaded, no, st.lists(constants, min_size=1).map(", ".join)),
        build("({} {}BETWEEN {} AND {})".format, loaded, no, constants, constants),
        build("({} {}LIKE {})".format, inner, no, patterns.map(quoted)),
        build("({} {}BEGINS WITH ({}))".format, inner, no, text_lists),
        build("({} {}ENDS WITH ({}))".format, inner, no, text_lists),
        build("({} IS {}NULL)".format, inner, no),
        build("({} IS {}NAN)".format, inner, no),
        build("IF({}, {}, {})".format, inner, inner, inner),
        build("COALESCE({})".format, lists),
        build("CONCAT({})".format, lists),
        build("INSTR({}, {})".format, inner, solid_texts),
        build("ARRAY_COUNT({})".format, inner),
    )


operands = st.one_of(fields, fields, constants)
expressions = st.recursive(operands, larger, max_leaves=12)
loaded = st.one_of(fields, headers)
with_headers = st.recursive(
    st.one_of(loaded, loaded, constants), partial(larger, loaded=loaded), max_leaves=12
)
with_message = st.recursive(
    st.one_of(loaded, constants, message), partial(larger, loaded=loaded), max_leaves=12
)

scalars = st.one_of(st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(TEXTS))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)
rows_of_headers = st.lists(  # of each message
    st.one_of(
        st.none(),
        st.dictionaries(
            st.sampled_from(NAMES),
            st.one_of(scalars, st.sampled_from([b"x", b"", float("nan"), 1 << 63])),
        ),
    ),
    min_size=6,
    max_size=6,
)
more = st.one_of(st.binary(max_size=3), st.sampled_from([float("nan"), float("inf")]))
garbage = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [
            b'{"a":5,"z":"\xff"}',
            b'{"a":"x","b":[1,{"a":5}],"35":1,"c d":true,"z":"\xff"}',
            b'{"a":5,"z":1e999}',
            b'{"a":5',
            b"[5]",
            b"\x82\xa1a\x05\xa1z\xa1\xff",
            b"\x82\xa1a\x05\xa1z\x81\x81\x01\x02\x03",
            b"a=5\x01b",
            b"35=5\x01x",
        ]
    ),
)


def spelled(value: Any) -> bytes:
    """JSON with every character of its texts as an escape."""
    plain = msgspec.json.encode(value).decode()
    return "".join(
        c if c in '[]{},:"-+.0123456789truefalsn\\ ' else f"\\u{ord(c):04x}" for c in plain
    ).encode()


def pairs(of: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    texts = st.sampled_from(TEXTS)
    made = st.lists(st.builds("{}={}".format, of, texts), max_size=5)
    return made.map(lambda found: "".join(f"{each}{SOH}" for each in found).encode())


def bounded(value: Any) -> Any:
    """The same within the integers of BSON, and with names that are texts."""
    if isinstance(value, dict):
        return {name: bounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [bounded(item) for item in value]
    return -5 if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def element(name: str, value: Any) -> str:
    """A value as XML; maps have attributes and elements."""
    if isinstance(value, list):
        return "".join(element(name, item) for item in value)
    if isinstance(value, dict):
        names = [each.replace(" ", "_") for each in value]
        found = "".join(map(element, names, value.values()))
        return f'<{name} id="5">{found}text</{name}>'
    return f"<{name}>{'' if value is None else escape(str(value))}</{name}>"


def orders() -> st.SearchStrategy[bytes]:
    """Messages shop.Order: `a` is a number, `b` a text."""
    legs = st.lists(st.fixed_dictionaries({}, optional={"sym": st.sampled_from(TEXTS)}), max_size=2)
    fields = {
        "a": st.sampled_from([0, 1, 5, -1, 100]), "b": st.sampled_from(TEXTS), "leg": legs,
        "price": st.sampled_from([0.0, 2.5, -1.5]), "numbers": st.lists(st.integers(0, 5)),
    }  # fmt: skip
    made = st.fixed_dictionaries({}, optional=fields)
    return made.map(lambda given: order(**given).SerializeToString())


def payloads(type_: str) -> st.SearchStrategy[bytes]:
    """Payloads of a type, some of them not what the type says."""
    good: st.SearchStrategy[bytes]
    if type_ in ("json", "auto"):
        odd = values.map(msgspec.json.encode)
        good = st.one_of(objects.map(msgspec.json.encode), odd, objects.map(spelled))
    elif type_ == "msgpack":
        keys = st.one_of(st.sampled_from(NAMES), st.sampled_from([35, 1, b"a"]))
        good = st.dictionaries(keys, st.one_of(values, more), max_size=4).map(
            msgspec.msgpack.encode
        )
    elif type_ == "nvfix":
        good = pairs(st.sampled_from(NAMES))
    elif type_ == "fix":
        good = pairs(st.sampled_from(["35", "44", "8"]))
    elif type_ == "bson":
        good = objects.map(bounded).map(bson.encode)
    elif type_ == "xml":
        roots = st.tuples(st.sampled_from(["a", "b", "none"]), values)
        roots = roots.filter(lambda root: not isinstance(root[1], list))
        good = roots.map(lambda root: element(*root).encode())
    elif type_ == ORDER:
        good = orders()
    else:
        good = st.binary(max_size=8)
    return st.one_of(good, good, good, good, garbage)
