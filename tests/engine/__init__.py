"""Tests of zbroker/engine."""
