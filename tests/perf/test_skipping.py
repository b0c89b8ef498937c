"""Claims about what the skipping workload publishes and expects."""

from __future__ import annotations

import msgspec

from perf.harness import PAYLOAD_BYTES
from perf.skipping import NEEDLE_EVERY, Case, Payload, chunks, is_needle


def test_payloads_are_json_of_about_the_stated_size() -> None:
    for numbers in (range(3), range(9_999_998, 10_000_001)):
        for number, data in next(chunks(numbers.start, numbers.stop)):
            assert msgspec.json.decode(data, type=Payload).id == number
            assert PAYLOAD_BYTES - 10 <= len(data) <= PAYLOAD_BYTES + 5


def test_chunks_are_every_number_once() -> None:
    numbers = [number for chunk in chunks(7, 120_000) for number, _ in chunk]
    assert numbers == list(range(7, 120_000))


def test_one_message_in_so_many_is_a_needle() -> None:
    assert sum(map(is_needle, range(5 * NEEDLE_EVERY))) == 5


def test_a_case_adds_what_its_reader_adds() -> None:
    case = Case("x", "t", lambda _: True)
    case.takes(b"12345", 7)
    case.takes(b"12845", 8)
    assert (case.count, case.sum) == (2, ord("3") + 7 + ord("8") + 8)
