"""Tests of the public doors."""
