"""Subscriptions: from the broker's batches to the reader, whatever happens between them.

`core.py` and `feed.py` decide what is asked and what is new; `transport.py` moves the bytes;
`subscription.py` is what the reader sees.
"""
