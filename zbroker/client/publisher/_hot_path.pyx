# cython: language_level=3, boundscheck=False, wraparound=False
"""hot_path.py, compiled: the same names, which do the same.

Nothing here takes a lock. What two threads must not do at once is done without giving up the
interpreter lock in between: no Python code is called, and no object made that the garbage collector
tracks. So this module is not for a Python without that lock.
"""

from functools import update_wrapper

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

from zbroker.checksums import crc32c

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef extern from *:
    """
    /* As msgspec does it for a Struct that has gc=False: right only if there are no more fields. */
    static void without_gc(PyObject *type) {
        ((PyTypeObject *)type)->tp_flags &= ~Py_TPFLAGS_HAVE_GC;
        ((PyTypeObject *)type)->tp_free = PyObject_Free;
    }
    #define NEW(type, arguments) ((PyTypeObject *)type)->tp_new((PyTypeObject *)type, arguments, NULL)

    /* CRC-32C by an instruction: a call of the package for each message costs more than the rest. */
    #if defined(__x86_64__) && defined(__GNUC__)
    #define HAS_CRC() __builtin_cpu_supports("sse4.2")
    __attribute__((target("sse4.2")))
    static uint32_t fast_crc(uint32_t seed, const char *at, Py_ssize_t size) {
        unsigned long long crc = (uint32_t)~seed, word;
        for (; size >= 8; size -= 8, at += 8) {
            memcpy(&word, at, 8);
            crc = __builtin_ia32_crc32di(crc, word);
        }
        for (; size > 0; size--) crc = __builtin_ia32_crc32qi((uint32_t)crc, (unsigned char)*at++);
        return ~(uint32_t)crc;
    }
    #else
    #define HAS_CRC() 0
    #define fast_crc(seed, at, size) 0
    #endif
    """
    void without_gc(object kind)
    object NEW(type kind, tuple arguments)
    bint HAS_CRC()
    uint32_t fast_crc(uint32_t seed, const char* at, Py_ssize_t size)

cdef enum:
    SMALL_BYTES = 1_024
    ITEM_OVERHEAD = 5


@cython.no_gc
cdef class QueuedMessage:
    cdef public object _track, topic, value, time, extra

    def __init__(self, _track, topic, value, time=None, extra=None):
        self._track, self.topic, self.value, self.time, self.extra = _track, topic, value, time, extra

    def __reduce__(self):
        return type(self), (self._track, self.topic, self.value, self.time, self.extra)


def untracked(type kind):
    assert kind.__basicsize__ == QueuedMessage.__basicsize__, "a slot or a __dict__ may hold a cycle"
    without_gc(kind)
    return kind


cdef inline QueuedMessage make(type kind, object track, object topic, object value, object time):
    cdef QueuedMessage one = <QueuedMessage?>NEW(kind, ())
    one._track, one.topic, one.value, one.time = track, topic, value, time
    return one


def receipts(type kind, track, topics, list data, times):
    cdef bint each = type(topics) is list, timed = type(times) is list
    cdef Py_ssize_t i
    return [
        make(kind, track, (<list>topics)[i] if each else topics, data[i],
             (<list>times)[i] if timed else None)
        for i in range(len(data))
    ]


def number(list items, sequence):
    cdef long long next_one = sequence
    for item in items:
        (<QueuedMessage?>item).value = next_one
        next_one += 1


def payloads(list items, Py_ssize_t limit):
    cdef Py_ssize_t size, total = 0
    cdef QueuedMessage one
    topic, found = None, []
    for item in items:
        if not isinstance(item, QueuedMessage):
            return None
        one = <QueuedMessage>item
        if type(one.value) is not bytes or one.time is not None or one.extra is not None:
            return None
        if one.topic is not topic and topic is not None and one.topic != topic:
            return None
        topic, size = one.topic, PyBytes_GET_SIZE(one.value)
        total += size + ITEM_OVERHEAD
        if size > SMALL_BYTES or total > limit:
            return None
        found.append(one.value)
    return found


# -- the publish store in a directory ---------------------------------------------------------


cdef class MappedRecords:
    cdef readonly object map, seeds
    cdef Py_buffer _view
    cdef Py_ssize_t _at

    def __init__(self, mapped, seeds):
        PyObject_GetBuffer(mapped, &self._view, PyBUF_WRITABLE)
        self.map, self.seeds = mapped, seeds

    def __dealloc__(self):
        PyBuffer_Release(&self._view)

    def release(self):
        PyBuffer_Release(&self._view)
        self._view.len = 0

    def write(self, bytes record):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(record)
        if self._view.len - self._at < size:
            raise ValueError("the file is full")
        memcpy(<char*>self._view.buf + self._at, PyBytes_AS_STRING(record), size)
        self._at += size


cdef class StagingArea:
    cdef public MappedRecords _file
    cdef public Py_ssize_t _end
    cdef public bint each
    cdef public object _is_locked

    cdef bint put_plain(self, list inbox, QueuedMessage one) except -1:
        """Keeps and queues a message without time and extra; False if Python has to do that."""
        cdef MappedRecords file = self._file
        cdef PyObject* seed = PyDict_GetItem(file.seeds, one.topic)
        cdef Py_ssize_t length, size = PyBytes_GET_SIZE(one.value)
        cdef const char* name = PyUnicode_AsUTF8AndSize(one.topic, &length)
        cdef uint32_t crc
        cdef char* at
        if seed is NULL or self.each or length > 255:
            return False
        if HAS_CRC():
            crc = fast_crc(<object>seed, PyBytes_AS_STRING(one.value), size)
        else:
            crc = crc32c(one.value, <object>seed)
        # from here on no other thread gets a turn
        if self._is_locked() or self._file is not file or file._view.len - file._at < length + size + 11:
            return False
        at = <char*>file._view.buf + file._at
        at[0] = <char>0x93
        if length < 32:
            at[1] = <char>(0xA0 | length)
            at += 2
        else:
            at[1], at[2] = <char>0xD9, <char>length
            at += 3
        memcpy(at, name, length)
        at += length
        if size < 256:
            at[0], at[1] = <char>0xC4, <char>size
            at += 2
        else:
            at[0], at[1], at[2] = <char>0xC5, <char>(size >> 8), <char>size
            at += 3
        memcpy(at, PyBytes_AS_STRING(one.value), size)
        at += size
        at[0], at[1], at[2] = <char>0xCE, <char>(crc >> 24), <char>(crc >> 16)
        at[3], at[4] = <char>(crc >> 8), <char>crc
        file._at = at + 5 - <char*>file._view.buf
        self._end += 1
        inbox.append(one)
        return True


# -- the gate ---------------------------------------------------------------------------------


cdef class Inbox:
    cdef public list inbox
    cdef public set known
    cdef public object track, loop
    cdef public StagingArea staging
    cdef public Py_ssize_t inbox_limit, wake_at

    def push(self):
        self.wake()


def gated(type kind, running=None):
    def decorate(general):
        def publish(client, topic, data, *, time=None, **options):
            cdef Inbox port = client._publisher
            cdef QueuedMessage one
            if (
                not options
                and type(data) is bytes and PyBytes_GET_SIZE(data) <= SMALL_BYTES
                and type(topic) is str and topic in port.known
                and (time is None or type(time) is int)
                and len(port.inbox) < port.inbox_limit
                and (running is None or running() is port.loop)
            ):
                one = make(kind, port.track, topic, data, time)
                if port.staging is None:
                    port.inbox.append(one)
                elif time is not None or not port.staging.put_plain(port.inbox, one):
                    return general(client, topic, data, time=time)
                if len(port.inbox) >= port.wake_at:
                    port.push()
                return one
            return general(client, topic, data, time=time, **options)

        return update_wrapper(publish, general)

    return decorate
