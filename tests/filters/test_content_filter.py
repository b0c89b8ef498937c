"""Filters as others use them (zbroker/filters/content_filter, payloads)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.collisions import flood
from tests.filters.alone import takes
from tests.filters.test_compiler import About
from tests.formats.describing import KINDS
from zbroker.errors import ClientError
from zbroker.filters import Payloads, compile_at_once, compile_filter
from zbroker.formats import TYPES, name_of

JSON = [b'{"a":1,"s":"x"}', b'{"a":2}', b"malformed", b'{"a":3,"s":"x"}', b'{"s":"\xff","a":9}']


def picks(text: str, type_: str, data: Sequence[bytes]) -> list[int]:
    test = compile_filter(text).test(type_)
    return test.picks(Payloads(type_, data), range(len(data)), About())


def test_a_filter_keeps_its_text() -> None:
    assert compile_filter("/a  =  1").text == "/a  =  1"


def test_a_filter_is_made_once_per_type() -> None:
    filter_ = compile_filter("/a = 1")
    assert filter_.test("json") is filter_.test("json")
    assert filter_.test("json") is not filter_.test("msgpack")


def test_a_type_that_there_is_not_is_our_mistake() -> None:
    with pytest.raises(ValueError, match="'avro' is none of the message types"):
        compile_filter("/a = 1").test("avro")
    with pytest.raises(ValueError, match="'avro' is none of the message types"):
        Payloads("avro", [])


def test_only_the_messages_asked_for_are_looked_at() -> None:
    test = compile_filter("/a > 0").test("json")
    assert test.picks(Payloads("json", JSON), [3, 1], About()) == [3, 1]
    assert test.picks(Payloads("json", JSON), [2], About()) == []
    assert test.picks(Payloads("json", JSON), [], About()) == []


def test_a_malformed_payload_never_matches() -> None:
    assert picks("/a > 0", "json", JSON) == [0, 1, 3]
    assert picks("NOT /a = 7", "json", JSON) == [0, 1, 3]
    assert picks("/z IS NULL", "json", JSON) == [0, 1, 3]


def test_a_malformed_payload_does_not_match_whoever_else_looks() -> None:
    for shared in (False, True):
        payloads = Payloads("json", JSON)
        if shared:
            compile_filter("/s = 'x'").test("json").picks(payloads, range(5), About())
        test = compile_filter("/a = 9").test("json")
        assert test.picks(payloads, range(5), About()) == []


@pytest.mark.parametrize("text", ["/a = 1", "/a = 1 AND /b IS NULL", "NOT /a = 2"])
@pytest.mark.parametrize("part", [b'"\xff"', b"1e999", b'{"\xff":1}'])
def test_a_bad_part_that_the_filter_skips_is_noticed(text: str, part: bytes) -> None:
    assert picks(text, "json", [b'{"a":1,"z":' + part + b"}", b'{"a":1,"z":1}']) == [1]


def test_bytes_that_are_almost_json_have_no_fields_as_auto() -> None:
    payload = b'{"a":1,"b":3,"z":"\xff"}'
    assert takes(compile_filter("/b IS NULL OR /a = 2").test("auto"), payload)
    assert not takes(compile_filter("/a = 1").test("auto"), payload)


@pytest.mark.parametrize("text", ["/a < 'x'", "NOT /a = 'x'", "/a != 'x'", "/a NOT LIKE 'x'"])
def test_empty_text_meets_no_condition(text: str) -> None:
    assert picks(text, "json", [b'{"a":""}', b'{"a":"w"}', b"{}", b'{"a":[]}']) == [1]


def test_a_filter_without_fields_does_not_look_into_payloads() -> None:
    assert picks("MESSAGE_SIZE() < 10", "json", JSON) == [1, 2]


def test_payloads_are_decoded_whole_once_two_filters_look() -> None:
    payloads = Payloads("json", JSON)
    first, second = (compile_filter(text).test("json") for text in ("/a = 1", "/a = 2"))
    assert not payloads.is_shared(first)
    assert not payloads.is_shared(first)
    assert payloads.is_shared(second)
    assert payloads.is_shared(first)
    good, values = payloads.values(range(5))
    assert good == [0, 1, 3]
    assert payloads.values([0])[1][0] is values[0]


def test_a_filter_that_picked_most_of_a_batch_picks_the_same_from_the_next() -> None:
    test = compile_filter("/a > 1").test("json")
    for _ in range(3):
        assert test.picks(Payloads("json", JSON), range(5), About()) == [1, 3]
        assert test.picks(Payloads("json", JSON), [0], About()) == []


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("json", b'{"44":"101"}'),
        ("auto", b'{"44":101}'),
        ("msgpack", msgspec.msgpack.encode({44: 101})),
        ("msgpack", msgspec.msgpack.encode({"44": 101.5})),
        ("nvfix", b"44=101\x01"),
        ("fix", b"35=D\x0144=101\x01"),
    ],
)
def test_a_number_is_compared_in_every_type(type_: str, payload: bytes) -> None:
    assert takes(compile_filter("/44 > 100 AND /44 < 102").test(type_), payload)
    assert not takes(compile_filter("/44 > 102").test(type_), payload)


@pytest.mark.parametrize("type_", KINDS, ids=TYPES)
def test_bytes_of_any_kind_end_nothing(type_: str) -> None:
    data = [b"", b"\xff", b"{" * 9, b"[" * 5_000, b"\x91" * 5_000, b"=", b"\x01", b'{"a":{"a":1}}']
    for text in ("/a = 1", "/a/a = 1 OR [/a b] > 2", "/a LIKE 'x' AND /35 IN (1, 'y')"):
        for at in ([], list(range(len(data)))):
            picked = compile_filter(text).test(type_).picks(Payloads(type_, data), at, About())
            assert picked in ([], [7])


def test_bytes_without_fields_have_null_fields() -> None:
    for type_ in ("auto", "binary"):
        assert takes(compile_filter("/a IS NULL").test(type_), b"plain words")
        assert not takes(compile_filter("/a = 1 OR NOT /a = 1").test(type_), b"plain words")


def test_functions_about_the_message_ask_by_index() -> None:
    data = [b"{}"] * 6
    assert picks("TOPIC_NAME() = 'AB'", "json", data) == [1, 4]
    assert picks("BOOKMARK() ENDS WITH '|3|'", "json", data) == [3]
    assert picks("BOOKMARK() IS NULL", "json", data) == [0]
    assert picks("LAST_UPDATED() >= 2", "json", data) == [4, 5]
    assert picks("LAST_UPDATED() IS NULL", "json", data) == [0]


def test_a_header_is_asked_for_by_index_and_name() -> None:
    about = About([{"book": "b1"}, None, {"desk": "b1"}, {"book": "b2"}])
    test = compile_filter("HEADER('book') = 'b1'").test("json")
    assert test.picks(Payloads("json", [b"{}"] * 4), range(4), about) == [0]
    assert test.picks(Payloads("json", [b"{}"] * 4), [3, 0], about) == [0]
    without = compile_filter("HEADER('book') IS NULL").test("json")
    assert without.picks(Payloads("json", [b"{}"] * 4), range(4), about) == [1, 2]


def test_a_filter_of_headers_does_not_look_into_payloads() -> None:
    for type_ in KINDS:
        test = compile_filter("HEADER('book') = 'b1'").test(type_)
        assert takes(test, b"{malformed \xff", headers={"book": "b1"})
        assert test.maybe(b"")


@pytest.mark.parametrize("type_", KINDS, ids=TYPES)
def test_what_has_no_fields_may_have_headers(type_: str) -> None:
    test = compile_filter("HEADER('book') = 'b1' OR /a = 'x'").test(type_)
    name = name_of(type_)
    data = {"nvfix": b"35=8\x01", "fix": b"35=8\x01", "json": b"{}", "xml": b"<b/>"}.get(name, b"")
    data = {"msgpack": b"\x80", "bson": b"\5\0\0\0\0"}.get(name, data)
    assert takes(test, data, headers={"book": "b1"})
    assert not takes(test, data, headers={"book": "b2"})


@pytest.mark.parametrize(
    "text", ["= 'x'", "!= 'x'", "< 'z'", "IN ('x')", "LIKE 'x'", "BEGINS WITH 'x'", "+ 1 > 0"]
)
def test_a_binary_header_is_opaque_and_not_null(text: str) -> None:
    for claim in (f"HEADER('a') {text}", f"NOT HEADER('a') {text}"):
        assert not takes(compile_filter(claim).test("json"), b"{}", headers={"a": b"x"})
    claims = f"(HEADER('a') {text}) IS NULL AND HEADER('a') IS NOT NULL"
    assert takes(compile_filter(claims).test("json"), b"{}", headers={"a": b"x"})


def test_one_message_may_have_a_topic() -> None:
    test = compile_filter("TOPIC_NAME() = 'orders' AND BOOKMARK() IS NULL").test("json")
    assert takes(test, b"{}", topic="orders")
    assert not takes(test, b"{}")


def test_many_fields_are_read_whole() -> None:
    text = " AND ".join(f"/f{number} = {number}" for number in range(50))
    payload = msgspec.json.encode({f"f{number}": number for number in range(50)})
    assert takes(compile_filter(text).test("json"), payload)


@pytest.mark.parametrize("name", ['q"uote', "back\\slash", "f0", "class", "é", "__class__", " "])
def test_a_field_may_have_any_name(name: str) -> None:
    test = compile_filter(f"[/{name}] = 1").test("json")
    assert takes(test, msgspec.json.encode({name: 1}))
    assert not takes(test, msgspec.json.encode({name: 2, "f0": 3}))


@pytest.mark.parametrize("shared", [False, True])
def test_a_map_with_keys_made_to_be_slow_is_malformed_however_it_is_looked_at(
    shared: bool,
) -> None:
    """One such message in the log would stop a process each time somebody filters."""
    good = msgspec.msgpack.encode({"a": 1, **{f"name-{n}": n for n in range(200)}})
    inside = b"\x82\xa1a\x01\xa1b" + flood(20_000)
    data = [b"\x81\xa1a\x01", flood(20_000), inside, good]
    payloads = Payloads("msgpack", data)
    if shared:
        payloads.is_shared(object())
    test = compile_filter("/a = 1").test("msgpack")
    assert test.picks(payloads, range(4), About()) == [0, 3]


def test_a_filter_is_made_once_as_long_as_somebody_has_it() -> None:
    first = compile_filter("/a = 'once'")
    assert compile_filter("/a = 'once'") is first


def test_a_filter_knows_the_steps_of_its_regular_expressions() -> None:
    assert compile_filter("/a LIKE 'text' AND /b = 1").steps == 0
    one = compile_filter("/a LIKE 'a.b'").steps
    assert one > 0
    assert compile_filter("/a LIKE 'a.b' OR NOT REGEXP_MATCH(/b, 'a.b')").steps == 2 * one


def test_a_filter_that_goes_over_a_batch_without_a_break_has_few_steps() -> None:
    assert compile_at_once("/a LIKE 'a.*b'").steps > 0
    with pytest.raises(ClientError, match="steps") as caught:
        compile_at_once("/a LIKE '[ab][a-z]{1000}[XY]'")
    assert caught.value.code == "bad_filter"
