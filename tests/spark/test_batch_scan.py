"""Claims about filters over a directory: they choose what the same filter chooses in a broker."""

from __future__ import annotations

import json

import pytest

from tests.spark.logs import JournalMaker
from zbroker.errors import ZBrokerError
from zbroker.spark import plan_ranges, replay


@pytest.fixture
def maker(journal: JournalMaker) -> JournalMaker:
    for packed in (False, True):
        payloads = [json.dumps({"px": number}).encode() for number in range(50)]
        journal.given(["a", "b"] * 25, payloads, packed=packed)
        journal.given(["a"] * 3, [b"no json", b'{"px": 7}', b"{"], packed=packed)
    return journal


@pytest.mark.parametrize("parts", [1, 3])
def test_a_filter_chooses_messages_by_content(maker: JournalMaker, parts: int) -> None:
    ranges = plan_ranges(maker.directory, min_partitions=parts, filter="/px > 47 OR /px = 7")
    found = [json.loads(message.data)["px"] for part in ranges for message in replay(part)]
    assert found == [7, 48, 49, 7] * 2


def test_a_filter_and_a_topic_choose_together(maker: JournalMaker) -> None:
    ranges = plan_ranges(maker.directory, topic="b", filter="/px > 46")
    found = [json.loads(message.data)["px"] for part in ranges for message in replay(part)]
    assert found == [47, 49] * 2


def test_a_bad_filter_is_refused_when_planning(maker: JournalMaker) -> None:
    with pytest.raises(ZBrokerError) as caught:
        plan_ranges(maker.directory, filter="/px >")
    assert caught.value.code == "bad_filter"


def test_an_unknown_type_of_payloads_is_refused_when_planning(maker: JournalMaker) -> None:
    with pytest.raises(ZBrokerError) as caught:
        plan_ranges(maker.directory, filter="/px > 1", filter_type="jsn")
    assert caught.value.code == "bad_field"
