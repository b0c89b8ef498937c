"""Bookmark stores: what each named subscription has processed, kept by the client.

`memory.py` and `file.py` are the stores, `progress.py` decides what is processed, `format.py` is
what the bytes in a file mean.
"""
