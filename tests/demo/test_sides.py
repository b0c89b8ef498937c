"""Claims about the demo over two instances that need none of them."""

from __future__ import annotations

from zbroker.demo.deliveries import DeliveryVerdict
from zbroker.demo.sides import verdicts


def test_nothing_lost_and_all_flagged_is_right() -> None:
    done, again = verdicts(1_000, DeliveryVerdict(lost=0, other=0, again=7, unflagged=0))
    assert done == ("1,000 flights done, none is missing", "")
    assert again == ("7 came more than once, each flagged from the second time on", "")


def test_what_is_wrong_is_said() -> None:
    done, again = verdicts(1_000, DeliveryVerdict(lost=2, other=1, again=7, unflagged=3))
    assert done[1] == "2 were never done, 1 are not as they were published"
    assert again[1] == "3 came again without a flag"


def test_other_content_alone_is_wrong() -> None:
    [(_, difference), _] = verdicts(1, DeliveryVerdict(lost=0, other=1, again=0, unflagged=0))
    assert difference
