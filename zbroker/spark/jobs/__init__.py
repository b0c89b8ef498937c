"""Jobs over the log that ship: run by `zbroker spark`, or `spark-submit` with zbroker/cli/spark/.

export      the log as Parquet by date and topic
audit       sequences of publishers in one log, or two logs against each other
stats       messages, sizes, rates, queues
backfill    a table into a topic, once
reprocess   a part of the log through a function into a topic, once
job_runner   what they have in common: which part of the log, how it is run
"""
