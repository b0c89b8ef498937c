"""Claims about zbroker/filters."""
