"""Tests of the commands for links."""
