"""The client in an event loop: the cores of `zbroker.client` with another shell around them.

No thread: `publisher.py` and `line.py` have their turns in the loop, when a socket can be read
(`readiness.py`), when something is due (`turns.py`), and inside `publish()` when a batch is full.
"""
