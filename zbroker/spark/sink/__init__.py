"""Publishing from Spark, exactly once: tasks stage their rows, the driver commits what counts.

rows.py      what rows must look like, and their messages
staging.py   what a task does
writers.py   Spark's interfaces, for a batch and for a stream
"""
