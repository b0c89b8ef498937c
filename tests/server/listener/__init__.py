"""Tests of the public listeners."""
