"""A function of the user, called with messages: found by its name, and what it yields is checked.

def late(messages):                       --form messages: a list of Row
    for message in messages:
        yield "late", message.data        or (topic, payload, key)

def late(batch):                          --form arrow: a pyarrow.RecordBatch
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from zbroker.errors import ClientError
from zbroker.spark.names import NATIVE_COLUMNS

COLUMNS: Final = tuple(NATIVE_COLUMNS)
SCHEMA: Final = "topic string, payload binary, key binary"
ROWS: Final = 8_192
_ARROW: Final = pa.schema([("topic", pa.string()), ("payload", pa.binary()), ("key", pa.binary())])

Form = Literal["messages", "arrow"]
Function = Callable[[Any], Iterable[Any]]


class FunctionRow(NamedTuple):
    """A message, as a function sees it."""

    topic: str
    bookmark: str
    publisher: str
    sequence: int
    position: int
    time: datetime
    data: bytes


class FunctionName(NamedTuple):
    """module:function; folder: where modules are looked for besides, "" for nowhere."""

    name: str
    form: Form = "messages"
    folder: str = ""

    def load(self) -> Function:
        """Raises: ClientError bad_field."""
        module, _, attribute = self.name.partition(":")
        if not module or not attribute:
            raise ClientError("bad_field", f"{self.name!r} is not of the form module:function")
        if self.folder and self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            found = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            hint = "all executors must be able to import it: spark-submit --py-files"
            raise ClientError("bad_field", f"{self.name}: {error}", hint) from None
        if not callable(found):
            raise ClientError("bad_field", f"{self.name} cannot be called")
        function: Function = found
        return function


def applied(batches: Iterable[pa.RecordBatch], what: FunctionName) -> Iterator[pa.RecordBatch]:
    """What the function makes of the batches, in its order. Raises: ClientError bad_field."""
    function = what.load()
    made: list[tuple[Any, ...]] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        given = rows_of(batch) if what.form == "messages" else batch
        for one in function(given):
            made.append(_checked(one, what.name))
            if len(made) == ROWS:
                yield _batch(made)
                made = []
    if made:
        yield _batch(made)


def rows_of(batch: pa.RecordBatch) -> list[FunctionRow]:
    """The messages of a batch with the columns of COLUMNS."""
    columns = (batch.column(name).to_pylist() for name in COLUMNS)
    return [FunctionRow._make(row) for row in zip(*columns, strict=True)]


def _checked(one: Any, name: str) -> tuple[Any, ...]:  # noqa: ANN401 - whatever was yielded
    """Raises: ClientError bad_field."""
    if isinstance(one, tuple) and len(one) in (2, 3) and isinstance(one[0], str):
        topic, payload, key = one if len(one) == 3 else (*one, None)
        payload = payload.encode() if isinstance(payload, str) else payload
        key = key.encode() if isinstance(key, str) else key
        if isinstance(payload, bytes) and isinstance(key, bytes | None):
            return topic, payload, key
    text = f"{name} yielded {str(one)[:80]!r}"
    raise ClientError("bad_field", text, "yield (topic, payload) or (topic, payload, key)")


def _batch(made: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*made, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _ARROW.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
