"""The bookmark index: from bookmarks, positions and log times to places in the log.

Opened by the journal process only; everybody else asks it. May be deleted at any time.
"""
