"""Message types of `[[record]]` tables (zbroker/config/toml_reader.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from tests.formats.describing import ORDER, SHOP
from zbroker.config import Config, RecordConfig, parse
from zbroker.errors import ConfigError
from zbroker.recording import Recording


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.binpb"
    path.write_bytes(SHOP)
    return path


def text(**keys: object) -> str:
    lines = (f"{key} = {value!r}" for key, value in {"topic": "orders", **keys}.items())
    return "[[record]]\n" + "\n".join(lines) + "\n"


def wrong(given: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(given, "z.toml")
    return caught.value


def test_a_topic_has_a_message_by_its_descriptors(shop: Path) -> None:
    config = parse(text(type="protobuf", message="shop.Order", descriptors=str(shop)), "z.toml")
    assert Recording(config.record).type_of("orders") == ORDER
    assert Recording(config.record).type_of("other") == "auto"


def test_the_descriptors_go_to_the_processes_with_the_settings(shop: Path) -> None:
    config = parse(text(type="protobuf", message="shop.Order", descriptors=str(shop)), "z.toml")
    shop.unlink()
    again = msgspec.json.decode(msgspec.json.encode(config), type=Config)
    assert Recording(again.record).type_of("orders") == ORDER


def test_a_filter_of_such_a_record_is_asked(shop: Path) -> None:
    keys = {"type": "protobuf", "message": "shop.Order", "descriptors": str(shop)}
    config = parse(text(filter="/a > 5", **keys), "z.toml")
    assert Recording(config.record).by_content


@pytest.mark.parametrize("type_", ["bson", "xml", "json"])
def test_other_types_are_their_name(type_: str) -> None:
    assert RecordConfig("orders", type=type_).payload_type == type_


@pytest.mark.parametrize(
    ("keys", "line", "reason"),
    [
        ({"type": "protobuf"}, 1, "a record of type protobuf needs `message`"),
        ({"type": "protobuf", "message": "a"}, 1, "a record of type protobuf needs `descriptors`"),
        (
            {"type": "protobuf", "message": "a", "descriptors": "/none/x"},
            5,
            "/none/x: No such file or directory",
        ),
        ({"message": "a"}, 3, "`message` goes with type protobuf only"),
        ({"type": "bson", "descriptors": "x"}, 4, "`descriptors` goes with type protobuf only"),
    ],
)
def test_what_is_missing_or_too_much_is_said_with_its_line(
    keys: dict[str, object], line: int, reason: str
) -> None:
    error = wrong(text(**keys))
    assert error.code == "bad_config"
    assert error.reason.startswith(f"z.toml:{line}: ")
    assert reason in error.reason
    assert error.hint


def test_a_message_that_is_not_in_the_file_is_named(shop: Path) -> None:
    error = wrong(text(type="protobuf", message="shop.None", descriptors=str(shop)))
    assert "describes no message 'shop.None'" in error.reason
    assert "shop.Order" in error.hint


@pytest.mark.parametrize("name", ["bson", "protobuf"])
def test_a_type_whose_package_is_missing_is_refused_with_the_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bson" if name == "bson" else "google.protobuf", None)
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    error = wrong(text(type=name))
    assert "needs a package that is not installed" in error.reason
    assert error.hint == f"pip install 'zbroker[{name}]'"
