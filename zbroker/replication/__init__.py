"""The replication process: links that send this log to other instances, and store theirs."""
