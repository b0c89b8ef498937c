"""Traces the running broker: every Python call for one message, one acknowledgement, one partition.

    python -m tools.trace publish|ack|spark [--tree DIRECTORY]

A hook in PYTHONPATH records the calls of functions of `zbroker` in all processes, with a window for
each repetition; of each process the repetition with the median number of calls is shown. `--tree`
traces the package of another checkout. Comprehensions and resumed generators count as calls.
"""
