"""Taking messages from queues: what is asked and settled, the thread that does it, workers.

`core.py` decides and keeps no time; `line.py` moves bytes; `consumer.py` is what programs see.
"""
