"""Real processes on loopback: few tests, each with a limit on every wait."""
