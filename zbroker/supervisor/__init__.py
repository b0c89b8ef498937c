"""The supervisor: starts, watches and restarts the rooms of one instance."""
