"""The compiled statements of publishing do what those in Python do."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import shutil
import subprocess
import sys
import weakref
import zipfile
from importlib import import_module
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.client.aio.publisher import AsyncReceipt
from zbroker.client.publisher import hot_path, mapped_queue, packer, pure_python
from zbroker.client.publisher.mapped_queue import Staging, leftover
from zbroker.client.publisher.receipt import AckTracker, Receipt

ROOT = Path(__file__).parents[3]
NAME = "zbroker.client.publisher._hot_path"
ASKED = os.environ.get("ZBROKER_PURE_PYTHON", "") not in ("", "0")


def test_the_compiled_module_is_used_unless_python_is_asked_for():
    if shutil.which("cc") is None and os.environ.get("ZB_CI") != "1":
        pytest.skip("needs package gcc")
    assert hot_path.COMPILED is not ASKED


@pytest.fixture(params=["pure_python", "_hot_path"])
def form(request):
    """Either of the two modules, whichever is in use."""
    return form_of(request.param)


def form_of(name):
    try:
        return import_module(f"zbroker.client.publisher.{name}")
    except ImportError:
        pytest.skip("needs package gcc")


def kind_of(form):
    """A subclass without fields, as the receipts are."""

    @form.untracked
    class Sub(form.QueuedMessage):
        if form is not pure_python:
            __slots__ = ()

    return Sub


# -- packing ----------------------------------------------------------------------------------

SMALL = st.binary(max_size=40) | st.sampled_from([b"", b"x" * 255, b"x" * 256, b"x" * 1_024])
ANY = SMALL | st.sampled_from([b"x" * 1_025, 7, bytearray(b"z"), None, "text"])
EXTRA = st.just(packer.Extra(key=b"k"))


def rows_of(value, rare):
    return st.tuples(st.sampled_from(["a", "b"]), value, rare(st.just(5)), rare(EXTRA))


PLAIN = st.lists(rows_of(SMALL, lambda _: st.none()), min_size=1, max_size=40)
MIXED = st.lists(rows_of(ANY, lambda some: st.none() | some), min_size=1, max_size=10)


def outcome(form, given_rows, limit):
    items = [form.QueuedMessage(None, *row) for row in given_rows]
    try:
        found = list(packer.batches(items, limit))
        numbers = []
        for _, some, _ in found:
            form.number(some, (1 << 63) - 1 - len(some))
            numbers += [item.value for item in some]
        return [batch for batch, _, _ in found], numbers
    except Exception as error:
        return type(error), str(error)


@given(PLAIN | MIXED, st.sampled_from([50, 1_000, packer.BATCH_BYTES]))
def test_both_pack_the_same_bytes_or_raise_the_same(given_rows, limit):
    # those of pure_python.py are packed in Python, also if the compiled module is in use
    compiled = form_of("_hot_path")
    assert outcome(compiled, given_rows, limit) == outcome(pure_python, given_rows, limit)


@pytest.mark.parametrize("many", [1, 15, 16, 5_000])
def test_small_messages_of_one_topic_are_packed_at_once(many):
    compiled = form_of("_hot_path")
    data = [b"%d" % i for i in range(many)]
    items = compiled.receipts(kind_of(compiled), None, "a", data, None)
    assert compiled.payloads(items, packer.BATCH_BYTES) == data
    assert compiled.payloads(items, 5 * many) is None
    items[-1].time = 1
    assert compiled.payloads(items, packer.BATCH_BYTES) is None


@pytest.mark.parametrize("topics", ["a", ["a", "b"]])
@pytest.mark.parametrize("times", [None, [1, 2]])
def test_receipts_of_many_have_what_was_given(form, topics, times):
    kind, track, data = kind_of(form), object(), [b"1", b"2"]
    found = form.receipts(kind, track, topics, data, times)
    assert [type(one) for one in found] == [kind, kind]
    assert [(one.topic, one.value, one.time, one.extra) for one in found] == [
        ("a", b"1", times and 1, None),
        (topics[-1], b"2", times and 2, None),
    ]
    assert {id(one._track) for one in found} == {id(track)}


# -- receipts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Receipt, AsyncReceipt])
def test_a_receipt_is_equal_to_itself_only(kind):
    one, other = (kind(AckTracker(1), "a", b"x") for _ in range(2))
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2
    assert repr(one) == "Receipt('a', sequence=None, pending)"
    with pytest.raises(AttributeError):
        one.more = 1


def test_a_message_is_copied_and_pickled_with_all_it_has(form):
    one = form.QueuedMessage("track", "a", b"x", 5, packer.Extra(key=b"k"))
    for other in (copy.copy(one), pickle.loads(pickle.dumps(one))):
        assert type(other) is form.QueuedMessage
        assert other.__reduce__() == one.__reduce__()
        assert other != one


def test_a_receipt_is_not_pickled_away_from_its_client():
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(Receipt(AckTracker(1), "a", b"x"))


@pytest.mark.parametrize("kind", [Receipt, AsyncReceipt])
def test_the_garbage_collector_leaves_receipts_out(kind):
    track = AckTracker(1)
    assert not gc.is_tracked(kind(track, "a", b"x"))
    assert not gc.is_tracked(hot_path.receipts(kind, track, "a", [b"x"], None)[0])


def test_a_receipt_may_have_a_subclass_with_attributes():
    class Labelled(Receipt):
        label: str = ""

    one = Labelled(AckTracker(1), "a", b"x")
    one.label = "mine"
    assert (one.topic, one.label) == ("a", "mine")


def test_a_type_with_attributes_stays_tracked():
    compiled = form_of("_hot_path")

    class Open(compiled.QueuedMessage):
        pass

    with pytest.raises(AssertionError):
        compiled.untracked(Open)


class Thing:
    """What can be watched."""


def test_nothing_holds_what_was_published(form):
    kind, track, topic = kind_of(form), Thing(), "".join(["to", "pic"])
    data = [b"message %d" % number for number in range(1_000)]
    before = sys.getrefcount(topic), sys.getrefcount(data[5])
    gc.disable()
    try:
        client = rig(form, kind, track, {topic})
        for each in data:
            client.publish(topic, each)
        client.general.clear()
        items = client._publisher.inbox[:] + form.receipts(kind, track, topic, data, None)
        client._publisher.inbox.clear()
        list(packer.batches(items, packer.BATCH_BYTES))
        form.number(items, 1)
        after = sys.getrefcount(data[5])  # not in the assertion, which would hold it
        assert after == before[1]
        assert [item.value for item in items] == [*range(1, 2_001)]
        del items
        client._publisher.track = None  # its class is a cycle
        client._publisher.known.clear()
        watched = weakref.ref(track)
        del track
        assert watched() is None
        after = sys.getrefcount(topic)
        assert after == before[0]
    finally:
        gc.enable()


# -- the gate ---------------------------------------------------------------------------------


def rig(form, kind, track=None, known=("a",), limit=1_000_000, wake_at=1 << 62, staging=None):
    class Port(form.Inbox):
        woken = 0

        def wake(self):
            self.woken += 1

    class Client:
        _publisher = Port()

        def __init__(self):
            self.general = []

        @form.gated(kind)
        def publish(self, topic, data, *, time=None, key=None):
            """Publishes."""
            self.general.append((topic, data, time, key))
            if type(data) is not bytes:
                raise TypeError("data is bytes")
            receipt, port = kind(self._publisher.track, topic, data, time), self._publisher
            if port.staging is None:
                port.inbox.append(receipt)
            else:
                port.staging.put(port.inbox, receipt)
            if len(port.inbox) >= port.wake_at:
                port.wake()
            return receipt

    client, port = Client(), Client._publisher
    port.inbox, port.known, port.track, port.staging = [], set(known), track, staging
    port.inbox_limit, port.wake_at = limit, wake_at
    return client


@pytest.mark.parametrize(
    ("topic", "data", "options"),
    [
        ("b", b"", {}),
        ("a", bytearray(b"x"), {}),
        ("a", "x", {}),
        ("a", None, {}),
        ("a", b"x" * 1_025, {}),
        (None, b"x", {}),
        ("a", b"x", {"key": None}),
        ("a", b"x", {"time": True}),
        ("a", b"x", {"time": "now"}),
    ],
)
def test_the_gate_leaves_what_is_not_plain_to_the_method(topic, data, options):
    compiled = form_of("_hot_path")
    client = rig(compiled, kind_of(compiled))
    try:
        client.publish(topic, data, **options)
    except TypeError as error:
        assert str(error) == "data is bytes"  # noqa: PT017 - not each of them raises
    assert client.general == [(topic, data, options.get("time"), options.get("key"))]


def test_the_gate_queues_what_is_plain(form):
    track, kind = object(), kind_of(form)
    client = rig(form, kind, track)
    found = [client.publish("a", b"1"), client.publish(data=b"2", topic="a", time=5)]
    assert client._publisher.inbox == found
    assert [one.__reduce__() for one in found] == [
        (kind, (track, "a", b"1", None, None)),
        (kind, (track, "a", b"2", 5, None)),
    ]
    assert len(client.general) == (2 if form is pure_python else 0)


def test_a_full_inbox_is_for_the_method_to_wait_for(form):
    client = rig(form, kind_of(form), limit=1)
    client.publish("a", b"1")
    client.general.clear()
    client.publish("a", b"2")
    client._publisher.inbox_limit = -1
    client.publish("a", b"3")
    assert client.general == [("a", b"2", None, None), ("a", b"3", None, None)]


def test_an_inbox_that_is_long_enough_wakes_its_publisher(form):
    client = rig(form, kind_of(form), wake_at=3)
    woken = []
    for _ in range(4):
        client.publish("a", b"1")
        woken.append(client._publisher.woken)
    assert woken == [0, 0, 1, 2]


@pytest.mark.parametrize("given_things", [(), ("a",), ("a", b"x", 5)])
def test_arguments_that_are_missing_or_too_many_are_a_type_error(form, given_things):
    with pytest.raises(TypeError):
        rig(form, kind_of(form)).publish(*given_things)


def test_the_gate_has_the_signature_and_the_docs_of_the_method(form):
    client = rig(form, kind_of(form))
    assert (client.publish.__doc__, client.publish.__name__) == ("Publishes.", "publish")


# -- the publish store in a directory ---------------------------------------------------------


def contents(inbox):
    return [(one.topic, one.value, one.time) for one in inbox]


TOPICS = st.sampled_from(["a", "t" * 31, "t" * 32, "t" * 255, "\N{SNOWMAN}" * 85])


@given(st.lists(st.tuples(TOPICS, SMALL | st.just(b"x" * 5_000), st.none() | st.just(5))))
def test_what_was_staged_in_any_way_is_found_in_order(tmp_path_factory, messages):
    directory = tmp_path_factory.mktemp("staged")
    staging = Staging(directory, 1)
    client = rig(hot_path, Receipt, AckTracker(1), {row[0] for row in messages}, staging=staging)
    for number, (topic, data, time) in enumerate(messages):
        client.publish(topic, data, time=time)
        if number % 5 == 4:
            many = [Receipt(AckTracker(1), topic, b"many") for _ in range(3)]
            staging.put_many(client._publisher.inbox, many)
    staging.close()
    assert contents(leftover(directory, 1)) == contents(client._publisher.inbox)


def test_threads_that_stage_at_once_have_one_order(tmp_path):
    staging = Staging(tmp_path, 1)
    client = rig(hot_path, Receipt, AckTracker(1), staging=staging)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [
            Thread(target=lambda own=own: [client.publish("a", own * 300) for _ in range(2_000)])
            for own in (b"1", b"2", b"3", b"4")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    staging.close()
    assert len(client._publisher.inbox) == 8_000
    assert len(list(tmp_path.iterdir())) > 2  # so files were full in between
    assert contents(leftover(tmp_path, 1)) == contents(client._publisher.inbox)


def test_a_file_that_was_let_go_takes_no_more(form):
    file = form.MappedRecords(mapped_queue.mmap.mmap(-1, 100), {})
    file.write(b"x" * 90)
    with pytest.raises(ValueError):  # noqa: PT011
        file.write(b"x" * 11)
    assert file.map[:91] == b"x" * 90 + b"\0"
    file.release()
    file.map.close()
    with pytest.raises(ValueError):  # noqa: PT011
        file.write(b"x")


# -- without the compiled module --------------------------------------------------------------

TELL = """
import zbroker.client, zbroker.aio
from zbroker.client.publisher import hot_path
print(hot_path.COMPILED, hot_path.payloads.__module__)
"""
IN_PYTHON = "False zbroker.client.publisher.pure_python"


def told(code, cwd=ROOT, **env):
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "ZBROKER_PURE_PYTHON": "", **env}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_variable_chooses_python():
    assert told(TELL, ZBROKER_PURE_PYTHON="1") == IN_PYTHON


def test_a_module_that_was_not_built_is_done_without():
    assert told(f"import sys; sys.modules[{NAME!r}] = None\n{TELL}") == IN_PYTHON


def test_a_python_without_interpreter_lock_uses_python():
    assert told(f"import sys; sys._is_gil_enabled = lambda: False\n{TELL}") == IN_PYTHON


def test_sources_in_an_archive_as_spark_ships_them_need_nothing_compiled(tmp_path):
    archive = tmp_path / "zbroker.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in (ROOT / "zbroker").rglob("*.py"):
            packed.write(path, path.relative_to(ROOT))
    code = f"import zbroker.spark\nassert zbroker.__file__.startswith({str(archive)!r})\n{TELL}"
    assert told(code, tmp_path, PYTHONPATH=str(archive)) == IN_PYTHON


def test_the_errors_are_those_of_python(broker):
    code = f"""
from zbroker.client import connect
with connect({broker.url!r}, "pricer", timeout=10) as client:
    client.publish("a", b"1").wait(10)
    for topic, data, options in [("a", "x", {{}}), ("a", None, {{}}), (1, b"x", {{}}),
            ("", b"x", {{}}), ("a", b"x", {{"time": "now"}}), ("a", b"x", {{"key": "k"}}),
            ("a", b"x", {{"timeout": 1, "headers": 5}}), ("a", b"x" * 20_000_000, {{}})]:
        try:
            client.publish(topic, data, **options)
        except Exception as error:
            print(type(error).__name__, error)
"""
    compiled, python = told(code), told(code, ZBROKER_PURE_PYTHON="1")
    assert compiled == python
    assert len(python.splitlines()) == 8
