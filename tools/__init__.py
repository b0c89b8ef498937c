"""Programs for who works on zbroker: `python -m tools.tidy`, `python -m tools.console_shot`."""
