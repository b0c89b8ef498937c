"""Tests of the bookmark index."""
