"""Publishing: from `publish()` to the broker's ack, whatever happens between them.

`core.py` decides what is sent, kept, sent again and given up; `loop.py` is the I/O thread; the rest
is what a message passes: `backpressure.py`, `packer.py`, `store.py`, `receipt.py`.
"""
