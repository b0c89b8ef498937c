"""Queues that several instances have: owners of messages, and facts for all of them. Pure."""
