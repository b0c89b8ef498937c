"""A queue's table that comes as a map (zbroker/definitions/table_decoder.py)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.config import QueueConfig
from zbroker.definitions import BadQueue, read_table

DURATIONS = st.integers(0, 366 * 86_400_000)
CONFIGS = st.builds(
    QueueConfig,
    st.text("ab", min_size=1, max_size=3),
    topic=st.sampled_from(["", "t"]),
    regex=st.booleans(),
    lease=DURATIONS,
    max_per_subscription=st.integers(1, 1_000_000),
    retry_delay=st.lists(DURATIONS, max_size=3),
    size_alarm=st.integers(0, 1 << 60),
)


@given(CONFIGS)
def test_settings_that_were_a_map_are_the_same(config: QueueConfig) -> None:
    assert read_table(msgspec.to_builtins(config)) == config
    assert read_table(msgspec.msgpack.decode(msgspec.msgpack.encode(config))) == config


def test_sizes_and_durations_are_taken_as_in_the_file() -> None:
    found = read_table({"name": "q", "lease": "1m", "retry_delay": ["1s", 5], "size_alarm": "1KiB"})
    assert found == QueueConfig("q", lease=60_000, retry_delay=[1_000, 5], size_alarm=1_024)


@pytest.mark.parametrize(
    ("table", "key", "part"),
    [
        ({}, "name", "missing required field `name`"),
        ({"name": 5}, "name", "Expected `str`"),
        ({"name": "q", "lese": 1}, "name", "did you mean `lease`?"),
        ({"name": "q", "zzz": 1}, "name", "there are: name"),
        ({"name": "q", "lease": "soon"}, "lease", 'write "100ms"'),
        ({"name": "q", "lease": -1}, "lease", ">= 0"),
        ({"name": "q", "lease": None}, "lease", "Expected `int`"),
        ({"name": "q", "retry_delay": ["x"]}, "retry_delay", "'x' is not a duration"),
        ({"name": "q", "retry_delay": [1, [2]]}, "retry_delay", "Expected `int`"),
        ({"name": "q", "fairness": "never"}, "fairness", "'never'"),
        ({"name": "q", "scope": "distributed"}, "scope", "'distributed'"),
    ],
)
def test_a_wrong_table_is_refused_with_its_key(table: dict[str, Any], key: str, part: str) -> None:
    with pytest.raises(BadQueue) as caught:
        read_table(table)
    assert caught.value.key == key
    assert part in str(caught.value)
    assert "$" not in caught.value.reason
