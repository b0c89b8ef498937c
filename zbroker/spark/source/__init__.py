"""The data source `zbroker` of Spark SQL: batch and streaming reads of the log, no jar.

    options.py, parsers.py   what users write      offsets.py      what a checkpoint keeps
    places.py                where the log is      readers.py      Spark's readers, and their tasks
    datasource.py            the format that Spark looks up

Spark makes these objects in four or five processes, so a constructor opens no socket and starts no
thread, and whatever has to be known elsewhere is in options, offsets or pickled values.
"""
