"""The programs `zbroker` and `zbroker-admin`: one file per command."""
