"""The admin: what an instance says of itself, over HTTP on loopback."""
