"""Queues that several instances have: who owns which message, and what all of them know. Pure."""
