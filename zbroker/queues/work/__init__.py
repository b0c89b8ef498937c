"""One work queue: the places of its messages, and their consumers. See queue.py."""
