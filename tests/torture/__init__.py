"""The long and real ones: kills at every system call, power cuts, rot, garbage, full disks."""
