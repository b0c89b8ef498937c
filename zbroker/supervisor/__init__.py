"""The supervisor: starts, watches and restarts the processes of one instance."""
