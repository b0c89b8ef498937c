"""The public listener of a process: its ROUTER, who may connect, what an unknown peer may cost.

    zap.py         whether a key is known, and the self-test of that when the process starts
    guard.py       which connections are cut; pure
    kernel.py      what the kernel says of a connection
    gate.py        how many connections come in at once
    listener.py    all of it, in the loop of the process

docs/explanation/limits-before-authentication.md has each bound, its size and what was measured.
"""
