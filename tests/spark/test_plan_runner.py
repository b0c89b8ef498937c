"""Claims about the Python workers of Spark."""

from __future__ import annotations

import gc

from zbroker.spark.plan_runner import settle


def test_what_is_loaded_is_not_walked_after_each_task() -> None:
    gc.unfreeze()
    loaded = len(gc.get_objects())
    settle.__wrapped__()
    try:
        assert len(gc.get_objects()) < loaded / 10
    finally:
        gc.unfreeze()
