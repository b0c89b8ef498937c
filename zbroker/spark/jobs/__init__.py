"""Jobs over the log that ship: each file can be given to `spark-submit`, `zbroker spark` has all.

export      the log as Parquet by date and topic
audit       sequences of publishers in one log, or two logs against each other
stats       messages, sizes, rates, queues
backfill    a table into a topic, once
reprocess   a part of the log through a function into a topic, once
stretch.py, running.py    what they have in common: which part of the log, how it is run
"""
