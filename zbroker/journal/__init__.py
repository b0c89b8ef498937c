"""The log: its bytes, its one writer, its recovery and its readers."""
