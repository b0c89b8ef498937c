"""The simulator: disks, clocks and worlds that can fail."""
