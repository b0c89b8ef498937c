"""Programs for who works on zbroker: `python tools/tidy.py`, `python -m tools.console_shot`."""
