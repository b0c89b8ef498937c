"""Taking messages from queues: what is asked and settled, the thread that does it, workers.

`core.py` decides and keeps no time; `transport.py` moves bytes; `consumer.py` is what programs see.
"""
