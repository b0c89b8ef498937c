"""Tests of zbroker.queues.replicated."""
