"""The core of one work queue: where each message stands, and who gets it. See queue.py."""
