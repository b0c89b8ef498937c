"""The log as files, a library for all: format, disk, segments, reader, recovery, archive."""
