"""Claims about options: typed once, wrong ones refused with what was probably meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zbroker.errors import ZBrokerError
from zbroker.spark.source.options import OPTIONS, SourceOptions, parse

ROOT = Path(__file__).parents[3]
URL = "tcp://127.0.0.1:9101"

#: a text for each option, and what it means
GIVEN: list[tuple[str, str, object]] = [
    ("endpoint", URL, URL),
    ("endpoint", "127.0.0.1:9101", URL),
    ("journal", "/data", "/data"),
    ("archive", "/old", "/old"),
    ("topics", "a, b.c", ("a", "b.c")),
    ("topicPattern", "a.*", "a.*"),
    ("filter", "/px > 1", "/px > 1"),
    ("filterType", "json", "json"),
    ("startingBookmark", "earliest", "0"),
    ("startingBookmark", "Latest", "now"),
    ("startingBookmark", "42", 42),
    ("startingBookmark", "17|4|", "17|4|"),
    ("endingBookmark", "latest", "now"),
    ("endingBookmark", "0123456789abcdef.1.7", "0123456789abcdef.1.7"),
    ("startingTimestamp", "1000", "19700101T000001Z"),
    ("startingTimestamp", "1970-01-01T01:00:01+01:00", "19700101T000001Z"),
    ("endingTimestamp", "19700101T000001Z", "19700101T000001Z"),
    ("minPartitions", "8", 8),
    ("maxRecordsPerPartition", "1000", 1000),
    ("maxBookmarksPerTrigger", "5000", 5000),
    ("maxBytesPerTrigger", "1000", 1000),
    ("maxBytesPerTrigger", "64 MiB", 64 << 20),
    ("maxBytesPerTrigger", "2g", 2 << 30),
    ("failOnDataLoss", "FALSE", False),
    ("kafkaColumns", "true", True),
    ("readerName", "nightly", "nightly"),
    ("leaseSeconds", "3600", 3600),
    ("leaseSeconds", "60s", 60),
    ("rows", "100", 100),
    ("topic", "a", "a"),
    ("publishId", "night", "night"),
    ("keyFile", "/k.key_secret", "/k.key_secret"),
    ("serverKey", "/s.key", "/s.key"),
    ("user", "ann", "ann"),
    ("passwordVariable", "PASSWORD", "PASSWORD"),
]
COMPANIONS = {
    "archive": {"journal": "/data"},
    "keyFile": {"serverKey": "/s.key"},
    "serverKey": {"keyFile": "/k.key_secret"},
    "user": {"keyFile": "/k.key_secret", "serverKey": "/s.key"},
    "passwordVariable": {"keyFile": "/k.key_secret", "serverKey": "/s.key"},
}


def of(name: str, value: str) -> SourceOptions:
    place = {} if name in ("endpoint", "journal") else {"endpoint": URL}
    return parse({**place, **COMPANIONS.get(name, {}), name.lower(): value})


@pytest.mark.parametrize(("name", "value", "meaning"), GIVEN)
def test_an_option_is_read_in_any_case(name: str, value: str, meaning: object) -> None:
    field = next(option.field for option in OPTIONS if option.name == name)
    assert getattr(of(name, value), field) == meaning


def test_every_option_is_in_the_manual() -> None:
    page = (ROOT / "docs" / "reference" / "spark.md").read_text()
    for option in OPTIONS:
        aliases = ", ".join(f"`{alias}`" for alias in option.aliases)
        assert f"| `{option.name}` | {aliases} | {option.meaning} |" in page


def test_every_option_has_a_case_here() -> None:
    assert {name for name, _, _ in GIVEN} == {option.name for option in OPTIONS}


@pytest.mark.parametrize(
    ("alias", "name"),
    [(alias, option.name) for option in OPTIONS for alias in option.aliases],
)
def test_an_alias_means_the_same(alias: str, name: str) -> None:
    value = next(value for known, value, _ in GIVEN if known == name)
    assert of(alias, value) == of(name, value) if name != "endpoint" else parse({alias: value})


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"topicks": "a"}, "did you mean 'topics'?"),
        ({"startingofset": "earliest"}, "did you mean 'startingOffsets'?"),
        ({"maxoffsetpertrigger": "1"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"password": "x"}, "secrets appear in plans and logs: use keyFile, or passwordVariable"),
    ],
)
def test_an_unknown_option_suggests_the_nearest(given: dict[str, str], hint: str) -> None:
    with pytest.raises(ZBrokerError, match="there is no option") as caught:
        parse({"endpoint": URL, **given})
    assert (caught.value.code, caught.value.hint) == ("bad_field", hint)


def test_an_option_that_is_like_none_gets_the_list() -> None:
    with pytest.raises(ZBrokerError) as caught:
        parse({"endpoint": URL, "zzz": "1"})
    assert "endpoint, kafka.bootstrap.servers, journal" in caught.value.hint


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"topics": "a"},
        {"endpoint": ""},
        {"endpoint": "tcp://a:1,tcp://b:1"},
        {"endpoint": URL, "archive": "/a"},
        {"endpoint": URL, "topics": "a", "topicPattern": "b"},
        {"endpoint": URL, "topics": "a", "subscribe": "a"},
        {"endpoint": URL, "topics": "a,,b"},
        {"endpoint": URL, "minPartitions": "0"},
        {"endpoint": URL, "minPartitions": "-1"},
        {"endpoint": URL, "minPartitions": "many"},
        {"endpoint": URL, "minPartitions": "9" * 40},
        {"endpoint": URL, "failOnDataLoss": "yes"},
        {"endpoint": URL, "maxBytesPerTrigger": "12 parsecs"},
        {"endpoint": URL, "maxBytesPerTrigger": ""},
        {"endpoint": URL, "startingBookmark": '{"t": {"0": 4}}'},
        {"endpoint": URL, "startingBookmark": "yesterday"},
        {"endpoint": URL, "startingTimestamp": "yesterday"},
        {"endpoint": URL, "startingTimestamp": "2026-01-01T00:00:00"},
        {"endpoint": URL, "readerName": "\n"},
        {"endpoint": URL, "leaseSeconds": "99999999"},
        {"endpoint": URL, "keyFile": "/k"},
        {"endpoint": URL, "user": "ann"},
    ],
)
def test_what_makes_no_sense_is_refused_with_a_code(given: dict[str, Any]) -> None:
    with pytest.raises(ZBrokerError) as caught:
        parse(given)
    assert caught.value.code in ("bad_field", "bad_bookmark", "bad_topic")


def test_a_time_wins_over_a_bookmark() -> None:
    options = parse({"endpoint": URL, "startingOffsets": "earliest", "startingTimestamp": "0"})
    assert options.since == "19700101T000000Z"
