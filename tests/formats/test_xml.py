"""XML payloads: what they mean, and what is refused (zbroker/formats/xml.py)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.formats import FormatError, decode, show, xml


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"<a>5</a>", {"a": "5"}),
        (b"<a/>", {"a": ""}),
        (b"<a> x </a>", {"a": " x "}),
        (b'<a id="7"/>', {"a": {"@id": "7", "$": ""}}),
        (b'<a id="7">x</a>', {"a": {"@id": "7", "$": "x"}}),
        (b"<a>\n <b>1</b>\n <c>2</c>\n</a>", {"a": {"b": "1", "c": "2"}}),
        (b"<a><b>1</b><b/><b>3</b></a>", {"a": {"b": ["1", "", "3"]}}),
        (b"<a>x<b>1</b>y</a>", {"a": {"b": "1", "$": "xy"}}),
        (b"<n:a xmlns:n='u'><n:b>1</n:b></n:a>", {"n:a": {"@xmlns:n": "u", "n:b": "1"}}),
        (b"<a>&lt;&#233;<![CDATA[<b>]]><!-- no --><?no no?></a>", {"a": "<é<b>"}),
        ('<?xml version="1.0" encoding="UTF-8"?><é>ü</é>'.encode(), {"é": "ü"}),
    ],
)
def test_elements_attributes_and_text_are_a_map(data: bytes, value: object) -> None:
    assert decode("xml", data) == value
    assert show("xml", data) == value


BOMB = b'<!DOCTYPE a [<!ENTITY b "%s">%s]><a>&z;</a>' % (
    b"x" * 100,
    b"".join(b'<!ENTITY %c "&%c;&%c;">' % (n + 1, n, n) for n in range(ord("b"), ord("z"))),
)


@pytest.mark.parametrize(
    "data",
    [
        BOMB,
        b"<!DOCTYPE a><a/>",
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
        b'<!DOCTYPE a [<!ENTITY % b SYSTEM "http://127.0.0.1/x"> %b;]><a/>',
        b'<!DOCTYPE a [<!ATTLIST a b CDATA "x">]><a/>',
        b"<a>&b;</a>",
    ],
)
def test_a_document_type_and_entities_of_ones_own_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"document type|undefined entity"):
        decode("xml", data)


@pytest.mark.parametrize(
    "data",
    [
        b"", b" ", b"x", b"\xff", b"<a>", b"<a></b>", b"<a/><b/>", b"<a/>x", b"<a b=1/>",
        b"<a b='1' b='2'/>", b"<a>\xff</a>", b"<a>\0</a>", b"<a>&#0;</a>", b"<a", b"{}",
        b'<?xml version="1.0" encoding="latin-1"?><a>\xe9</a>',
    ],
)  # fmt: skip
def test_what_is_not_well_formed_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        decode("xml", data)
    assert caught.value.code == "bad_payload"


def test_depth_is_bounded_while_it_is_read() -> None:
    deepest = b"<a>" * xml.DEPTH_MAX + b"</a>" * xml.DEPTH_MAX
    assert decode("xml", deepest)
    with pytest.raises(FormatError, match="nested deeper than 64"):
        decode("xml", b"<a>" + deepest + b"</a>")
    with pytest.raises(FormatError, match="nested deeper than 64"):
        decode("xml", b"<a>" * 1_000_000)


def test_many_attributes_and_elements_take_time_in_proportion() -> None:
    names = b" ".join(b'n%d="1"' % n for n in range(20_000))
    assert len(decode("xml", b"<a " + names + b"/>")["a"]) == 20_001
    many = b"".join(b"<n%d/>" % n for n in range(20_000))
    assert len(decode("xml", b"<a>" + many + b"</a>")["a"]) == 20_000


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=5)
names = st.sampled_from(["a", "b", "n:c"])


def nodes(inner: st.SearchStrategy[xml.XmlNode]) -> st.SearchStrategy[xml.XmlNode]:
    def made(name: str, attributes: dict[str, str], items: list[str | xml.XmlNode]) -> xml.XmlNode:
        node = xml.XmlNode(name, attributes)
        node.items = items
        return node

    items = st.lists(st.one_of(texts.filter(bool), inner), max_size=4)
    return st.builds(made, names, st.dictionaries(names, texts, max_size=2), items)


@given(st.recursive(names.map(lambda name: xml.XmlNode(name, {})), nodes, max_leaves=8))
def test_what_is_written_reads_back(node: xml.XmlNode) -> None:
    if not any(character in repr(node.value()) for character in ("\\ufffe", "\\uffff")):
        assert xml.parse(xml.encode(node)).value() == node.value()


def test_characters_of_markup_are_written_as_entities() -> None:
    node = xml.XmlNode("a", {"b": "<&\"'>\n\t\r"})
    node.items = ["<&>\r\n]]>"]
    assert xml.parse(xml.encode(node)).value() == node.value()
