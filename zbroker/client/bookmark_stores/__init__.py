"""Bookmark stores: what each named subscription has processed, kept by the client.

`memory.py` and `file.py` are the stores, `tracker.py` is one subscription in one of them,
`progress.py` decides what that means, `format.py` is how it stands in a file.
"""
