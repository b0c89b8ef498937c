"""Archives and packs sealed segments, and says what is in them.

A library for the admin process and the tools: everything here makes new files and verifies them.
What became redundant is unlinked by the journal process alone, when it is asked to.

    for done_bytes in archive.pack(places, serial):  # in short steps, at the caller's pace
        ...                                          # closing it gives up and leaves nothing
    archive.tidy(places)                             # at a start: what a crash left unfinished
    archive.summary(places, serial)                  # what is in a sealed segment
"""

from __future__ import annotations

from zbroker.log.archive.archiver import copy, make_directory
from zbroker.log.archive.cleanup import tidy
from zbroker.log.archive.packer import pack
from zbroker.log.archive.segment_copy import CopyResult, Steps, finish
from zbroker.log.archive.summaries import Summary, summary

__all__ = [
    "CopyResult",
    "Steps",
    "Summary",
    "copy",
    "finish",
    "make_directory",
    "pack",
    "summary",
    "tidy",
]
