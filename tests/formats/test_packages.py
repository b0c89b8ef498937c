"""Message types whose package is missing (zbroker/formats/types.py)."""

from __future__ import annotations

import sys

import pytest

from tests.formats.describing import ORDER
from zbroker.errors import ZBrokerError
from zbroker.formats import bson, check_package, decode, protobuf, types

MODULES = {"bson": ["bson"], "protobuf": ["google.protobuf", "google.protobuf.message"]}


@pytest.mark.parametrize("name", ["json", "xml", "binary"])
def test_a_type_that_needs_none_is_there(name: str) -> None:
    check_package(name)


@pytest.mark.parametrize("name", ["bson", "protobuf"])
def test_a_missing_package_is_an_error_with_the_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in MODULES[name]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ZBrokerError) as caught:
        check_package(name)
    assert caught.value.code == "missing_package"
    assert caught.value.hint == f"pip install 'zbroker[{name}]'"


def test_a_payload_without_the_package_is_an_error_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bson", None)
    bson._bson.cache_clear()
    with pytest.raises(ZBrokerError, match="zbroker\\[bson\\]"):
        decode("bson", b"")
    bson._bson.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    protobuf.reader.cache_clear()
    with pytest.raises(ZBrokerError, match="zbroker\\[protobuf\\]"):
        protobuf.reader(types.parse(ORDER).descriptors, "shop.Order")
