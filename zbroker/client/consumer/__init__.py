"""Taking messages from queues: requests and settlements, the thread that sends them, workers.

`core.py` decides and keeps no time; `transport.py` moves bytes; `consumer.py` is what programs see.
"""
