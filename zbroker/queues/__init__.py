"""Queues: state folded from the log, leases, fairness, delivery. See loop.py."""
