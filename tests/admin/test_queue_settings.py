"""zbroker/admin/queue_settings.py: values of a definition as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.admin.queue_settings import definition, keys
from zbroker.config.queues import QueueConfig
from zbroker.errors import ClientError


@pytest.mark.parametrize(
    ("key", "value", "text", "found"),
    [
        ("lease", "30s", "30s", 30_000),
        ("lease", 5, "5", 5),
        ("size_alarm", "2GiB", "2GiB", 2 << 30),
        ("retry_delay", ["1s", 10_000], "1s, 10s", [1_000, 10_000]),
        ("retry_delay", [], "", []),
        ("regex", True, "true", True),
        ("regex", False, "false", False),
        ("max_backlog", 7, "7", 7),
        ("topic", "30s", "30s", "30s"),
        ("kind", "replayable", "replayable", "replayable"),
        ("filter", "/price > 100", "/price > 100", "/price > 100"),
    ],
)
def test_a_value_has_its_type(key: str, value: Any, text: str, found: Any) -> None:
    assert definition({key: value}) == {key: found}
    assert definition({key: text}, texts=True) == {key: found}


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("lease", "long", "not a duration"),
        ("lease", -1, ">= 0"),
        ("lease", None, "int"),
        ("lease", ["1s"], "int"),
        ("size_alarm", "30s", "not a size"),
        ("retry_delay", "1s", "array"),
        ("retry_delay", ["1s", "x"], "not a duration"),
        ("regex", "true", "bool"),
        ("max_backlog", "7", "int"),
        ("max_per_subscription", 0, ">= 1"),
        ("kind", "heap", "enum"),
        ("topic", 7, "str"),
    ],
)
def test_a_wrong_value_names_its_key(key: str, value: Any, told: str) -> None:
    with pytest.raises(ClientError, match=told) as caught:
        definition({key: value})
    assert caught.value.code == "bad_queue"
    assert f"`{key}`" in caught.value.reason
    assert caught.value.hint


@pytest.mark.parametrize(
    ("key", "text"), [("regex", "maybe"), ("max_backlog", "many"), ("retry_delay", "1s,soon")]
)
def test_a_wrong_text_is_refused(key: str, text: str) -> None:
    with pytest.raises(ClientError, match=f"`{key}`"):
        definition({key: text}, texts=True)


def test_an_unknown_key_has_a_neighbour() -> None:
    with pytest.raises(ClientError) as caught:
        definition({"leese": 1})
    assert caught.value.hint == "did you mean `lease`?"
    with pytest.raises(ClientError, match="no `zzz`") as caught:
        definition({"zzz": 1})
    assert all(key in caught.value.hint for key in keys())


def test_every_key_but_the_name_can_be_given() -> None:
    assert set(keys()) == set(QueueConfig.__struct_fields__) - {"name"}
    with pytest.raises(ClientError):
        definition({"name": "x"})
