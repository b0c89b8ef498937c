"""The client in an event loop: the cores of `zbroker.client` with other ports around them.

It has no thread: the publisher and the connections have their turns in the loop, when a socket can
be read or when something is due (`transport.py`), and inside `publish()` when a batch is full.
"""
